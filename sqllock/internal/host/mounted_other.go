//go:build !linux

package host

// Mounted is false: only Linux mounts single files.
func Mounted(string) (bool, error) { return false, nil }

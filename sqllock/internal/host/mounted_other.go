//go:build !linux

package host

// Mounted returns false: only Linux mounts single files.
func Mounted(string) (bool, error) { return false, nil }

//go:build !(linux || darwin || freebsd || dragonfly)

package host

// NetworkFS cannot tell on this system, and says that dir is local.
func NetworkFS(string) (string, error) { return "", nil }

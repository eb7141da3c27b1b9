//go:build !(linux || darwin || freebsd || dragonfly)

package host

// NetworkFS always returns "": this system does not report it.
func NetworkFS(string) (string, error) { return "", nil }

//go:build !unix

package host

import "os"

// PrivateDir creates dir unless it exists.
func PrivateDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// OwnDir returns the folder of temporary files.
func OwnDir() string { return os.TempDir() }

//go:build !unix

package host

import "os"

// PrivateDir creates dir unless it exists.
func PrivateDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// OwnDir returns the folder of temporary files.
func OwnDir() string { return os.TempDir() }

// IsPrivate reports a folder that does not exist.
func IsPrivate(dir string) error {
	_, err := os.Stat(dir)
	return err
}

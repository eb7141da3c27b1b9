//go:build !unix

package host

import "os"

// ID identifies a file on this machine, whatever its path.
type ID struct{ info os.FileInfo }

// Identify returns the ID of the file at path.
func Identify(path string) (ID, error) {
	fi, err := os.Stat(path)
	return ID{fi}, err
}

// Same reports whether both identify one file.
func (id ID) Same(other ID) bool {
	return id.info != nil && other.info != nil && os.SameFile(id.info, other.info)
}

// Links returns 1: this system does not report it.
func Links(string) (uint64, error) { return 1, nil }

// Writable does the same as Identify.
func Writable(path string) (ID, error) { return Identify(path) }

// Locked returns false: this system does not report it. But it lets nobody remove or move an open
// file.
func Locked(string, int64, int64) (bool, error) { return false, nil }

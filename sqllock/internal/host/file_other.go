//go:build !unix

package host

import "os"

// ID tells a file from all others of this machine, whatever path leads to it.
type ID struct{ info os.FileInfo }

// Identify returns the ID of the file at path.
func Identify(path string) (ID, error) {
	fi, err := os.Stat(path)
	return ID{fi}, err
}

// Same reports whether both are of one file.
func (id ID) Same(other ID) bool {
	return id.info != nil && other.info != nil && os.SameFile(id.info, other.info)
}

// Links is 1: this system does not tell.
func Links(string) (uint64, error) { return 1, nil }

// Writable is Identify.
func Writable(path string) (ID, error) { return Identify(path) }

// Locked is false: this system does not tell. It does not let anybody remove or move a
// file that is open, either.
func Locked(string, int64, int64) (bool, error) { return false, nil }

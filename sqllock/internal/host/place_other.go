//go:build !linux

package host

// Place describes the file system of a folder.
type Place struct {
	Kind string // of file system: "ext4"; its hexadecimal number if it has no name here; "": unknown
	Free uint64 // bytes that the user may write; 0 with Kind "": unknown
}

// PlaceOf returns the zero Place: this system does not report it.
func PlaceOf(string) (Place, error) { return Place{}, nil }

// OwnTime returns false: only Linux has time namespaces.
func OwnTime() bool { return false }

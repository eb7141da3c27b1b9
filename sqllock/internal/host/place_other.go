//go:build !linux

package host

// Place is what the machine says of the folder that a file lies in.
type Place struct {
	Kind string // of file system: "ext4"; its number in hexadecimal if it has no name here; "" if not known
	Free uint64 // bytes that the user may write; 0 with Kind "" if not known
}

// PlaceOf cannot tell on this system.
func PlaceOf(string) (Place, error) { return Place{}, nil }

// OwnTime reports whether this process sees a time since the boot of its own, which only Linux has.
func OwnTime() bool { return false }

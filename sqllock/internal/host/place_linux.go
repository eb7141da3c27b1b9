package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Place describes the file system of a folder.
type Place struct {
	Kind string // of file system: "ext4"; its hexadecimal number if it has no name here; "": unknown
	Free uint64 // bytes that the user may write; 0 with Kind "": unknown
}

// Kinds of file systems by their statfs number: those of one machine, and those whose name is of
// use.
var kinds = map[uint32]string{
	0xEF53:     "ext4",
	0x58465342: "xfs",
	0x9123683E: "btrfs",
	0x2FC12FC1: "zfs",
	0xF2F52010: "f2fs",
	0x01021994: "tmpfs",
	0x794C7630: "overlay",
	0x65735546: "fuse",
	0x4D44:     "vfat",
	0x2011BAB0: "exfat",
}

// PlaceOf describes dir's file system.
func PlaceOf(dir string) (Place, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Place{}, err
	}
	kind := kinds[uint32(st.Type)]
	if kind == "" {
		kind = fmt.Sprintf("%#x", uint32(st.Type))
	}
	return Place{kind, st.Bavail * uint64(st.Bsize)}, nil
}

// OwnTime reports whether this process is in a time namespace with its own time since boot.
func OwnTime() bool {
	b, err := os.ReadFile("/proc/self/timens_offsets") // "boottime 100 0", or "… 7 …"
	if err != nil {
		return false // this kernel has no time namespaces, or denies access
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && (f[0] == "boottime" || f[0] == "7") && (f[1] != "0" || f[2] != "0") {
			return true
		}
	}
	return false
}

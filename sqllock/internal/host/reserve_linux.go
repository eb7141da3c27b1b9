package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reserve asks the file system to reserve space for the first n bytes of the file at path, where it
// can. The file's size stays the same.
func Reserve(path string, n int64) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
}

package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reserve has the file system keep room for the first n bytes of the file at path, as far as
// it can; the file's size stays.
func Reserve(path string, n int64) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, n)
}

//go:build unix

package host

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ID identifies a file on this machine, whatever its path.
type ID struct{ dev, ino uint64 }

// Identify returns the ID of the file at path.
func Identify(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return idOf(&st), nil
}

func idOf(st *unix.Stat_t) ID { return ID{uint64(st.Dev), uint64(st.Ino)} }

// Same reports whether both identify one file.
func (id ID) Same(other ID) bool { return id == other }

// Links returns how many hard links the file at path has.
func Links(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return uint64(st.Nlink), nil
}

// Writable opens the file at path for writing and closes it, so that an overlay copies a file of a
// lower layer. It returns the file's resulting ID. This process must not have the file open:
// closing it would drop its locks.
func Writable(path string) (ID, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ID{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ID{}, err
	}
	return idOf(&st), nil
}

// Locked reports whether another process has a POSIX lock on any of n bytes of the file at path.
// This process must not have the file open: closing it would drop its locks.
func Locked(path string, first, n int64) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: first, Len: n}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return false, &fs.PathError{Op: "fcntl", Path: path, Err: err}
	}
	return lock.Type != unix.F_UNLCK, nil
}

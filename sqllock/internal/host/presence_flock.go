//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Presence shows that a process is alive: it keeps an exclusive flock on a file. The kernel drops
// the flock when the process ends, however it ends. The descriptor is closed on exec, so children
// do not inherit it, unless they are given a duplicate.
type Presence struct {
	path  string
	f     *os.File
	inode uint64
}

// Announce creates the file at path (mode 0600) and locks it.
func Announce(path string) (*Presence, error) {
	for range 10 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		// Between create and lock, a sweep may have removed the file.
		ino, err := lockNew(f, path)
		if err == nil {
			return &Presence{path, f, ino}, nil
		}
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, os.ErrNotExist) {
			os.Remove(path)
			return nil, fmt.Errorf("flock %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("flock %s: %w", path, unix.EWOULDBLOCK)
}

func lockNew(f *os.File, path string) (uint64, error) {
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return 0, err
	}
	ino, err := same(f, path)
	if err != nil {
		return 0, err
	}
	return ino, nil
}

// Duplicate returns another descriptor of the file. The flock lasts until both are closed. A child that
// is given it keeps the flock until it ends.
func (p *Presence) Duplicate() (*os.File, error) {
	fd, err := unix.FcntlInt(p.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

// Inode distinguishes this file from a later one at the same path.
func (p *Presence) Inode() uint64 { return p.inode }

// Intact reports whether the file is still at its path.
func (p *Presence) Intact() bool {
	ino, err := same(p.f, p.path)
	return err == nil && ino == p.inode
}

// Close removes the file, then drops the lock.
func (p *Presence) Close() error {
	if p.Intact() {
		os.Remove(p.path)
	}
	return p.f.Close()
}

// Drop drops the lock and leaves the file, as a killed process would.
func (p *Presence) Drop() error { return p.f.Close() }

// Probe checks whether the process that announced itself at path is alive. inode is its file's; 0
// is any. For Dead it returns a DeadFile, which keeps others from announcing themselves there until
// it is closed; otherwise nil.
func Probe(path string, inode uint64) (Life, *DeadFile) {
	// Waiters call this ten times a second, so use few system calls.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Unknown, nil
	}
	if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return Alive, nil
		}
		return Unknown, nil
	}
	f := os.NewFile(uintptr(fd), path)
	ino, err := same(f, path)
	if err != nil || inode != 0 && ino != inode {
		f.Close()
		return Unknown, nil
	}
	return Dead, &DeadFile{f: f, path: path}
}

// DeadFile is a dead process's file, locked.
type DeadFile struct {
	f    *os.File
	path string
}

// Close unlocks the file. With remove it deletes the file first.
func (g *DeadFile) Close(remove bool) {
	if remove {
		if _, err := same(g.f, g.path); err == nil {
			os.Remove(g.path)
		}
	}
	g.f.Close()
}

// same returns the inode of f if it is still at path, else os.ErrNotExist.
func same(f *os.File, path string) (uint64, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &a); err != nil {
		return 0, err
	}
	if err := unix.Lstat(path, &b); err != nil {
		return 0, err
	}
	if a.Ino != b.Ino || a.Dev != b.Dev {
		return 0, fmt.Errorf("%s was replaced: %w", filepath.Base(path), os.ErrNotExist)
	}
	return uint64(a.Ino), nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

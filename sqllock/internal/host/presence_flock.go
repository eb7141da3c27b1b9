//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Presence is a process's sign of life: a file that it keeps an exclusive flock on. The
// kernel drops the flock when the process ends, however it ends. The descriptor is closed on
// exec, so a child does not inherit it.
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
		// Between create and lock a sweeper may have taken the file for an orphan.
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

// Inode tells this file from a later one at the same path.
func (p *Presence) Inode() uint64 { return p.inode }

// Intact reports whether the file is still where it was created.
func (p *Presence) Intact() bool {
	ino, err := same(p.f, p.path)
	return err == nil && ino == p.inode
}

// Close removes the file, then lets go of the lock.
func (p *Presence) Close() error {
	if p.Intact() {
		os.Remove(p.path)
	}
	return p.f.Close()
}

// Drop lets go of the lock and leaves the file, as the end of the process would.
func (p *Presence) Drop() error { return p.f.Close() }

// Probe finds out whether the process that announced itself at path lives. inode is the
// one it had, or 0 for any. On Dead the returned Grave keeps anybody from announcing itself
// there until it is closed; else it is nil.
func Probe(path string, inode uint64) (Life, *Grave) {
	// Waiters do this ten times a second: no more system calls than it takes.
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
	return Dead, &Grave{f: f, path: path}
}

// Grave holds a dead process's file.
type Grave struct {
	f    *os.File
	path string
}

// Close lets go of the file; with remove it also deletes it, while it still has the lock.
func (g *Grave) Close(remove bool) {
	if remove {
		if _, err := same(g.f, g.path); err == nil {
			os.Remove(g.path)
		}
	}
	g.f.Close()
}

// same returns the inode of f if path still leads to it, else os.ErrNotExist.
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

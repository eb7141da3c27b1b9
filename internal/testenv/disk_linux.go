package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Disk is a small file system that can be full.
type Disk struct {
	Path string

	t testing.TB
}

// SmallDisk mounts a file system of so many bytes, in memory. It takes root; else the test is
// skipped.
func SmallDisk(t testing.TB, size int) *Disk {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test fills a disk")
	}
	dir, err := os.MkdirTemp("", "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return mount(t, dir, size)
}

func mount(t testing.TB, dir string, size int) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small disk has to be mounted, which takes root")
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skip("a small disk has to be mounted, which is not allowed here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &Disk{Path: dir, t: t}
}

// OwnDisk moves the server's data to a disk that has room for so many bytes more. For that it is
// started again, gracefully.
func (s *server) OwnDisk(room int) *Disk {
	s.t.Helper()
	s.Stop()
	info, err := os.Stat(s.data)
	if err != nil {
		s.t.Fatal(err)
	}
	was, err := os.MkdirTemp(filepath.Dir(s.data), "was")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(was) })
	finish(s.t, exec.Command("cp", "-a", s.data+"/.", was))
	d := mount(s.t, s.data, taken(s.t, was)+room)
	s.t.Cleanup(s.Kill) // before it is unmounted
	owner := info.Sys().(*syscall.Stat_t)
	if err := errors.Join(os.Chown(s.data, int(owner.Uid), int(owner.Gid)), os.Chmod(s.data, info.Mode().Perm())); err != nil {
		s.t.Fatal(err)
	}
	finish(s.t, exec.Command("cp", "-a", was+"/.", s.data))
	s.Start()
	return d
}

// taken is how much room the files of a folder take.
func taken(t testing.TB, dir string) (bytes int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		const page = 4096
		bytes += page + int(info.Sys().(*syscall.Stat_t).Blocks*512+page-1)/page*page // of a file with holes less than its size
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }

// Fill takes all that is left of the disk. What a server frees later is taken by the next Fill.
func (d *Disk) Fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
	if err != nil {
		return // not even an empty file
	}
	defer func() { _ = f.Close() }()
	for _, size := range []int{1 << 20, 4096, 1} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			d.t.Fatal(err)
		}
	}
}

// Relieve gives back what Fill has taken.
func (d *Disk) Relieve() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
}

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

// Disk is a small file system, which a test can fill.
type Disk struct {
	Path string

	t testing.TB
}

// SmallDisk mounts a file system of size bytes, in memory. It needs root; otherwise it skips the
// test.
func SmallDisk(t testing.TB, size int) *Disk {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test fills a disk")
	}
	dir, err := os.MkdirTemp("", "disk")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return mount(t, dir, size)
}

func mount(t testing.TB, dir string, size int) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this test mounts a small disk, which needs root")
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skip("this test mounts a small disk, which is not permitted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &Disk{Path: dir, t: t}
}

// OwnDisk moves the server's data to a disk with space for room more bytes. It restarts the server,
// gracefully.
func (s *server) OwnDisk(room int) *Disk {
	s.t.Helper()
	s.Stop()
	info, err := os.Stat(s.data)
	must(s.t, err)
	was, err := os.MkdirTemp(filepath.Dir(s.data), "was")
	must(s.t, err)
	s.t.Cleanup(func() { _ = os.RemoveAll(was) })
	finish(s.t, exec.Command("cp", "-a", s.data+"/.", was))
	d := mount(s.t, s.data, taken(s.t, was)+room)
	s.t.Cleanup(s.Kill) // before the disk is unmounted
	owner := info.Sys().(*syscall.Stat_t)
	must(s.t, errors.Join(os.Chown(s.data, int(owner.Uid), int(owner.Gid)), os.Chmod(s.data, info.Mode().Perm())))
	finish(s.t, exec.Command("cp", "-a", was+"/.", s.data))
	s.Start()
	return d
}

// taken returns how much space the files of a folder take.
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
		// A file with holes takes less than its size.
		bytes += page + int(info.Sys().(*syscall.Stat_t).Blocks*512+page-1)/page*page
		return nil
	})
	must(t, err)
	return bytes
}

func (d *Disk) filler() string { return filepath.Join(d.Path, "filler") }

// Fill takes all free space of the disk. Space that a server frees later is taken by the next Fill.
func (d *Disk) Fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
	if err != nil {
		return // not even an empty file fits
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

// Relieve frees the space that Fill has taken.
func (d *Disk) Relieve() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
}

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestSQLiteReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		dir := filepath.Join(t.TempDir(), "ro")
		must(t, os.Mkdir(dir, 0o500))
		refused(t, filepath.Join(dir, "locks.db"), nil, driver.ErrRefused, "permission")
		return
	}
	dir := tmpfs(t, "size=1m")
	must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	refused(t, filepath.Join(dir, "locks.db"), nil, driver.ErrRefused, "read-only")
}

// tmpfs mounts a small file system.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := filepath.Join(t.TempDir(), "m")
	must(t, os.Mkdir(dir, 0o700))
	if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skip("mounting is not allowed here: ", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

func TestSQLiteFullDisk(t *testing.T) {
	dir := tmpfs(t, "size=2m")
	b := openTest(t, filepath.Join(dir, "locks.db"), nil)
	s := openTestSession(t, b, time.Minute)
	h := granted(t, s, exclusive("before"))
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	must(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	must(t, f.Close())
	for i := 0; err != nil; i++ { // first use up the space that the files have reserved
		if i == 20_000 {
			t.Fatal("the disk is full and no call fails")
		}
		var rep driver.Reply
		rep, err = s.Acquire(t.Context(), exclusive(fmt.Sprint("full/", i, strings.Repeat("x", 400))))
		if err != nil {
			if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain) {
				t.Fatalf("full disk: %+v, %v; want ErrUnavailable or ErrUncertain", rep, err)
			}
			break
		}
		err = syscall.ENOSPC
	}
	refused(t, filepath.Join(dir, "new.db"), nil, driver.ErrUnavailable, "full")
	must(t, os.Remove(filler))
	must(t, s.Release(t.Context(), h, 0))
	granted(t, s, exclusive("after"))
	checkIntegrity(t, b)
}

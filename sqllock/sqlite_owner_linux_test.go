package sqllock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestSQLiteForeignFolder finds, as root, the folder of sockets made by another user, who could
// exchange everything in it.
func TestSQLiteForeignFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's folder needs root")
	}
	t.Setenv("TMPDIR", t.TempDir())
	path := storePath(t)
	must(t, os.Mkdir(path+".run", 0o700))
	must(t, os.Chown(path+".run", 65534, 65534))
	b := openTest(t, path, nil)
	openTestSession(t, b, time.Minute)
	if strings.HasPrefix(b.st.run, path) {
		t.Errorf("sockets in %s, a folder of another user", b.st.run)
	}
	t.Cleanup(func() { os.RemoveAll(b.st.run) })
}

// TestSQLiteFolderTaken finds the folder of sockets, whose name can be foretold, taken by somebody else: before the file
// is opened, and while it is in use. Two processes hand over all the same.
func TestSQLiteFolderTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, take := range map[string]func(dir string) error{
		"a file":            func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link to nothing": func(dir string) error { return os.Symlink("/does/not/exist", dir) },
		"a link":            func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"open to all":       func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"another user's": func(dir string) error {
			if os.Geteuid() != 0 {
				return os.Symlink(t.TempDir(), dir) // only root gives folders away
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534))
		},
	} {
		for _, late := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "locks.db")
			dir := elsewhere(path)
			taken := func() {
				t.Helper()
				must(t, os.RemoveAll(dir))
				must(t, take(dir))
			}
			if !late {
				taken()
			}
			b := openTest(t, path, nil)
			first := openTestSession(t, b, helperTTL)
			h := granted(t, first, exclusive("a"))
			if late {
				taken()
				must(t, first.repair(t.Context()))
			}
			if filepath.Dir(first.body.bellPath) == dir {
				t.Fatalf("%s, late %v: sockets in %s, which is taken", name, late, dir)
			}
			p := startHelper(t, path)
			p.say("acquire a")
			p.hear("waiting")
			must(t, first.Release(t.Context(), h, 0))
			p.granted()
			wake := queued(t, first, exclusive("a"))
			p.say("release")
			p.hear("released")
			woken(t, wake)
			must(t, p.in.Close())
			for range p.out { // until it has ended
			}
			must(t, b.Close())
			left, err := filepath.Glob(dir + "-*")
			must(t, err)
			if len(left) > 0 {
				t.Errorf("%s, late %v: left behind: %q", name, late, left)
			}
		}
	}
}

// TestSQLiteNoFolder: where no folder for sockets can be made, the error says which, whose, and what to do.
func TestSQLiteNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "locks.db")
	dir := elsewhere(path)
	if !strings.HasPrefix(dir, os.TempDir()) {
		t.Skip("this user has a folder of its own")
	}
	must(t, os.WriteFile(os.TempDir(), nil, 0o600))
	refused(t, path, nil, driver.ErrRefused, "set TMPDIR to a folder of your own")
}

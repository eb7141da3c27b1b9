package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestSQLiteForeignFolder: the folder of root's sockets belongs to another user, who could replace
// everything in it.
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

// TestSQLiteFolderTakenNextToTheFile: in a shared folder, another user has taken the name of the
// folder of sockets next to the file.
func TestSQLiteFolderTakenNextToTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's file needs root")
	}
	t.Setenv("TMPDIR", t.TempDir())
	for name, take := range map[string]func(dir string) error{
		"a file":            func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link to nothing": func(dir string) error { return os.Symlink("/does/not/exist", dir) },
		"a link":            func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		path := storePath(t)
		must(t, take(path+".run"))
		must(t, os.Lchown(path+".run", 65534, 65534))
		b, err := Open(path, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		openTestSession(t, b, time.Minute)
		if strings.HasPrefix(b.st.run, path) {
			t.Errorf("%s: sockets in %s, which another user has made", name, b.st.run)
		}
		must(t, closed(b))
	}
}

// TestSQLiteAddressOfAnotherFile: a user of a shared file has written a session whose files are
// others. A process of a more powerful user finds the session dead, and removes only files of
// sessions.
func TestSQLiteAddressOfAnotherFile(t *testing.T) {
	path := storePath(t)
	st := openTest(t, path, nil).st
	dir := t.TempDir()
	up, err := filepath.Rel(path+".run", dir)
	must(t, err)
	for i, at := range []string{dir, up} {
		file, bell := filepath.Join(dir, "passwd"), filepath.Join(dir, "shadow")
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.WriteFile(bell, nil, 0o600))
		fi, err := os.Stat(file)
		must(t, err)
		must(t, st.write(t.Context(), func(x *tx) error {
			_, err := x.c.exec(qAddSession, newID(), filepath.Join(at, "shadow"), filepath.Join(at, "passwd"),
				int64(fi.Sys().(*syscall.Stat_t).Ino), x.now, "")
			return err
		}))
		st.sweepSessions(t.Context(), "")
		for _, victim := range []string{file, bell} {
			if _, err := os.Lstat(victim); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
}

// TestSQLiteFolderTaken: another user has taken the predictable name of the folder of sockets,
// before the file is opened or during use. Two processes still hand over a lock.
func TestSQLiteFolderTaken(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, take := range map[string]func(dir string) error{
		"a file":            func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link to nothing": func(dir string) error { return os.Symlink("/does/not/exist", dir) },
		"a link":            func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"open to all":       func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"another user's": func(dir string) error {
			if os.Geteuid() != 0 {
				return os.Symlink(t.TempDir(), dir) // only root can give folders away
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
			if filepath.Dir(first.endpoint.bellPath) == dir {
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
			must(t, closed(b))
			left, err := filepath.Glob(dir + "-*")
			must(t, err)
			if len(left) > 0 {
				t.Errorf("%s, late %v: left over: %q", name, late, left)
			}
		}
	}
}

// TestSQLiteNoFolder: where no folder for sockets can be created, the error reports which one, its
// owner, and what to do.
func TestSQLiteNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "locks.db")
	dir := elsewhere(path)
	if !strings.HasPrefix(dir, os.TempDir()) {
		t.Skip("this user has its own folder")
	}
	must(t, os.WriteFile(os.TempDir(), nil, 0o600))
	refused(t, path, nil, driver.ErrRefused, "set TMPDIR to a folder of your own")
}

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// fill uses up a folder's file system, and returns a function that frees it.
func fill(t *testing.T, dir string) (relieve func()) {
	t.Helper()
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	must(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	must(t, f.Close())
	return func() { must(t, os.Remove(filler)) }
}

// TestSQLiteNoRoom fills the disk of a store with leases. Refused requests return ErrUnavailable
// with a reason, and change nothing. Renewals and releases work, since they need no space.
// Everything works again when there is space.
func TestSQLiteNoRoom(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, dir string) (relieve func()){
		"full": fill,
		"no inodes": func(t *testing.T, dir string) func() {
			var made []string
			for i := 0; ; i++ {
				path := filepath.Join(dir, fmt.Sprint("i", i))
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					break
				}
				made = append(made, path)
			}
			return func() {
				for _, path := range made {
					must(t, os.Remove(path))
				}
			}
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			dir := tmpfs(t, "size=8m,nr_inodes=200")
			path := filepath.Join(dir, "locks.db")
			b := openTest(t, path, nil)
			s, other := openTestSession(t, b, time.Minute), openTestSession(t, b, time.Minute)
			req := exclusive("x")
			h := granted(t, s, req)
			var holds []driver.Hold
			for i := range 10 {
				holds = append(holds, granted(t, s, exclusive(fmt.Sprint("y", i))))
			}
			mine := exclusive("x")
			wake := queued(t, other, mine)
			relieve := take(t, dir)
			noRoomFor := func(what string, err error) {
				t.Helper()
				if err != nil && (!errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "room") &&
					!strings.Contains(err.Error(), "no space")) {
					t.Errorf("%s: %v; want ErrUnavailable with a reason", what, err)
				}
			}
			failed := 0
			for i := range 500 { // more than fits in the log
				changes, err := s.Renew(t.Context(), append(holds, h))
				if noRoomFor("Renew", err); err != nil && failed < 50 { // the log cannot restart while a process reads
					failed++
					time.Sleep(10 * time.Millisecond)
				} else if err != nil || len(changes) > 0 {
					t.Fatalf("renewal %d without space: %+v, %v", i, changes, err)
				}
			}
			must(t, s.Release(t.Context(), h, 0))
			next := holdOf(mine, woken(t, wake))
			third := exclusive("x")
			wake = queued(t, s, third)
			refused := 0
			for i := range 1000 {
				if name != "full" {
					break
				}
				rep, err := s.Acquire(t.Context(), exclusive(fmt.Sprint("n", i, strings.Repeat("x", 400))))
				if noRoomFor("Acquire", err); err != nil {
					if rep.Token != 0 {
						t.Fatal("granted, with an error: ", rep, err)
					}
					refused++
				}
				if refused == 5 {
					break
				}
			}
			if refused == 0 && name == "full" {
				t.Error("no request was refused")
			}
			_, err := b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: time.Minute})
			noRoomFor("Open", err)
			if err == nil && name == "no inodes" {
				t.Error("a session without a file")
			}
			if _, err := Open(filepath.Join(dir, "new.db"), nil); err == nil {
				t.Error("another store was created without space")
			} else {
				noRoomFor("Open", err)
			}
			if err := other.Release(t.Context(), next, 0); err != nil { // new names have used up the log's reserve
				noRoomFor("Release", err)
				select {
				case token := <-wake:
					t.Fatal("notified of a release that was refused: ", token)
				default:
				}
				relieve()
				must(t, other.Release(t.Context(), next, 0))
			} else {
				relieve()
			}
			must(t, s.Release(t.Context(), holdOf(third, woken(t, wake)), 0))
			granted(t, s, exclusive("after"))
			openTestSession(t, b, time.Minute)
			checkIntegrity(t, b)
		})
	}
}

// TestSQLiteFileLimit limits the size of a process's files (ulimit -f).
func TestSQLiteFileLimit(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	p := startHelperBy(t, path, []string{"bash", "-c", `ulimit -f 200; exec "$0"`})
	for i := range 5000 {
		p.say(fmt.Sprint("acquire n", i, strings.Repeat("x", 300)))
		line := <-p.out
		if strings.HasPrefix(line, "granted") {
			continue
		}
		if !strings.Contains(line, driver.ErrUnavailable.Error()) || !strings.Contains(line, "limit on file sizes") {
			t.Errorf("%s; want ErrUnavailable with a reason", line)
		}
		granted(t, openTestSession(t, b, time.Minute), exclusive("x"))
		checkIntegrity(t, b)
		return
	}
	t.Error("no request was refused")
}

// TestSQLiteOpenWithoutRoom opens a store on a full disk: the error gives the reason in words.
func TestSQLiteOpenWithoutRoom(t *testing.T) {
	dir := tmpfs(t, "size=1m")
	path := filepath.Join(dir, "locks.db")
	must(t, openTestOnce(path))
	relieve := fill(t, dir)
	refused(t, path, nil, driver.ErrUnavailable, "no space")
	relieve()
	must(t, openTestOnce(path))
}

// TestSQLiteImmutable: the file is protected against changes (chattr +i).
func TestSQLiteImmutable(t *testing.T) {
	path := storePath(t)
	must(t, openTestOnce(path))
	if out, err := runCommand("chattr", "+i", path); err != nil {
		t.Skip("files cannot be made immutable here: ", err, out)
	}
	defer runCommand("chattr", "-i", path)
	refused(t, path, nil, driver.ErrRefused, "not permitted")
}

// TestSQLiteReadOnlyMount opens a store through a read-only mount of its folder, while a lock is
// held.
func TestSQLiteReadOnlyMount(t *testing.T) {
	path := storePath(t)
	p := startHelper(t, path)
	p.say("acquire x")
	p.granted()
	target := t.TempDir()
	mount(t, filepath.Dir(path), target, "", syscall.MS_BIND, "")
	must(t, syscall.Mount("", target, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	refused(t, filepath.Join(target, "locks.db"), nil, driver.ErrRefused, "read-only file system")
	checkShared(t, p, openTest(t, path, nil))
}

func runCommand(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

package sqlite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// mount mounts a file system until the test ends. It needs root.
func mount(t *testing.T, source, target, fstype string, flags uintptr, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if err := syscall.Mount(source, target, fstype, flags, options); err != nil {
		t.Skip("mounting is not allowed here: ", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(target, syscall.MNT_DETACH)) })
}

// TestSQLiteOtherPaths opens the file of a lock that another process holds, by other paths. The
// second process would have its own log and shared memory, and would get the lock too.
func TestSQLiteOtherPaths(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, path string) string{
		"a hard link": func(t *testing.T, path string) string {
			link := filepath.Join(t.TempDir(), "locks.db")
			must(t, os.Link(path, link))
			return link
		},
		"a hard link next to it": func(t *testing.T, path string) string {
			must(t, os.Link(path, path+"2"))
			return path + "2"
		},
		"a mount of the file": func(t *testing.T, path string) string {
			target := filepath.Join(t.TempDir(), "locks.db")
			must(t, os.WriteFile(target, nil, 0o600))
			mount(t, path, target, "", syscall.MS_BIND, "")
			return target
		},
		"the file moved": func(t *testing.T, path string) string {
			to := filepath.Join(t.TempDir(), "locks.db")
			must(t, os.Rename(path, to))
			return to
		},
		"the file and its log moved": func(t *testing.T, path string) string {
			to := filepath.Join(t.TempDir(), "locks.db")
			must(t, os.Rename(path, to))
			must(t, os.Rename(path+"-wal", to+"-wal"))
			return to
		},
		"the log removed": func(t *testing.T, path string) string {
			must(t, os.Remove(path+"-wal"))
			return path
		},
		"the shared memory removed": func(t *testing.T, path string) string {
			must(t, os.Remove(path+"-shm"))
			return path
		},
		"both removed": func(t *testing.T, path string) string {
			must(t, os.Remove(path+"-wal"))
			must(t, os.Remove(path+"-shm"))
			return path
		},
		"the file removed": func(t *testing.T, path string) string {
			must(t, os.Remove(path))
			return path
		},
		"a copy in the file's place": func(t *testing.T, path string) string {
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path+"2", b, 0o600))
			must(t, os.Rename(path+"2", path))
			return path
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			path := storePath(t)
			p := startHelper(t, path)
			p.say("acquire x")
			p.granted()
			second := other(t, path)
			soon := machine
			soon.closing = 100 * time.Millisecond // nobody closes it meanwhile
			b, err := Open(second, &Config{env: &soon})
			if err == nil {
				defer b.Close()
				s, err := b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: time.Minute})
				if err == nil {
					rep, err := s.Acquire(t.Context(), exclusive("x"))
					t.Fatalf("opened, and asked for a held lock: token %d, %v", rep.Token, err)
				}
				t.Fatalf("opened; a session: %v", err)
			}
			if !errors.Is(err, driver.ErrRefused) {
				t.Errorf("%v; want ErrRefused", err)
			}
			t.Log(err)
		})
	}
}

// TestSQLiteSamePaths opens the file of a lock that another process holds, by paths to the same
// three files. The processes exclude each other, and one hands the lock over to the other.
func TestSQLiteSamePaths(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, path string) string{
		"a link to the file": func(t *testing.T, path string) string {
			link := filepath.Join(t.TempDir(), "other.db")
			must(t, os.Symlink(path, link))
			return link
		},
		"a link to the folder": func(t *testing.T, path string) string {
			link := filepath.Join(t.TempDir(), "folder")
			must(t, os.Symlink(filepath.Dir(path), link))
			return filepath.Join(link, "locks.db")
		},
		"a mount of the folder": func(t *testing.T, path string) string {
			target := t.TempDir()
			mount(t, filepath.Dir(path), target, "", syscall.MS_BIND, "")
			return filepath.Join(target, "locks.db")
		},
		"a file whose builder died before it removed its first name": func(t *testing.T, path string) string {
			must(t, os.Link(path, path+".new-abcdefgh"))
			return path
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			path := storePath(t)
			p := startHelper(t, path)
			p.say("acquire x")
			p.granted()
			checkShared(t, p, openTest(t, other(t, path), nil))
		})
	}
}

// checkShared: b waits for x, which p holds, gets it from p, and gives it back.
func checkShared(t *testing.T, p *proc, b *Backend) {
	t.Helper()
	s := openTestSession(t, b, helperTTL)
	req := exclusive("x")
	wake := queued(t, s, req)
	p.say("release")
	p.hear("released")
	h := holdOf(req, woken(t, wake))
	p.say("acquire x")
	p.hear("waiting")
	must(t, s.Release(t.Context(), h, 0))
	p.granted()
	checkIntegrity(t, b)
}

// TestSQLiteNamespaces shares the file between two mount namespaces with different paths of the
// folder, as containers have.
func TestSQLiteNamespaces(t *testing.T) {
	path := storePath(t)
	target := t.TempDir()
	p := startHelperBy(t, filepath.Join(target, "locks.db"),
		unshared(t, "mount --bind '"+filepath.Dir(path)+"' '"+target+"'"))
	p.say("acquire x")
	p.granted()
	if _, err := os.Stat(filepath.Join(target, "locks.db")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the mount is visible outside its namespace: ", err)
	}
	checkShared(t, p, openTest(t, path, nil))
}

// unshared returns a command that runs setup in a new mount namespace, and then the helper.
func unshared(t *testing.T, setup string) []string {
	t.Helper()
	namespaces := "-m"
	if os.Geteuid() != 0 {
		namespaces = "-rm" // and root in a user namespace, who may mount there
	}
	if out, err := exec.Command("unshare", namespaces, "true").CombinedOutput(); err != nil {
		t.Skipf("mount namespaces do not work here: %v: %s", err, out)
	}
	return []string{"unshare", namespaces, "sh", "-c", setup + ` && exec "$0"`}
}

// TestSQLiteOverlay takes the file from the lower layer of an overlay, as from a container's image.
// Processes in the overlay share a copy, and the file below is another.
func TestSQLiteOverlay(t *testing.T) {
	path := storePath(t)
	below := openTest(t, path, nil)
	s := openTestSession(t, below, time.Minute)
	h := granted(t, s, exclusive("below"))
	top := tmpfs(t, "size=16m")
	for _, dir := range []string{"upper", "work", "merged"} {
		must(t, os.Mkdir(filepath.Join(top, dir), 0o700))
	}
	merged := filepath.Join(top, "merged")
	mount(t, "overlay", merged, "overlay", 0, "lowerdir="+filepath.Dir(path)+",upperdir="+top+"/upper,workdir="+top+
		"/work")
	p := startHelper(t, filepath.Join(merged, "locks.db"))
	p.say("acquire x")
	p.granted()
	checkShared(t, p, openTest(t, filepath.Join(merged, "locks.db"), nil))
	must(t, s.Release(t.Context(), h, 0))
	granted(t, s, exclusive("x")) // another store
	checkIntegrity(t, below)
}

// A call that is refused because the file was replaced returns after all sessions have been notified,
// also if another call found that out and is still about it.
func TestSQLiteLostFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	b, err := Open(path, nil)
	must(t, err)
	defer b.Close()
	s := openTestSession(t, b, time.Minute)
	must(t, os.Remove(path))
	s.st.mu.Lock()
	first, second := make(chan error, 1), make(chan bool, 1)
	go func() { first <- s.st.present() }()
	for !s.st.over.Load() {
		time.Sleep(time.Millisecond)
	}
	go func() {
		_ = s.st.present()
		select {
		case <-s.Lost():
			second <- true
		default:
			second <- false
		}
	}()
	time.Sleep(20 * time.Millisecond) // for a second call that does not wait
	s.st.mu.Unlock()
	if err := <-first; !errors.Is(err, errReplaced) {
		t.Errorf("%v; want ErrRefused", err)
	}
	if !<-second {
		t.Error("a call was refused before a session was notified")
	}
}

// TestSQLiteLost removes or replaces files while a lock is held. The holder is notified, and nobody
// else gets the lock while its process has the old files open.
func TestSQLiteLost(t *testing.T) {
	for name, hurt := range map[string]func(path string) error{
		"the file removed":          os.Remove,
		"the log removed":           func(path string) error { return os.Remove(path + "-wal") },
		"the shared memory removed": func(path string) error { return os.Remove(path + "-shm") },
		"the log replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+"-new", nil, 0o600), os.Rename(path+"-new", path+"-wal"))
		},
		"the folder moved": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"2") },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store", "locks.db")
			b, err := Open(path, nil)
			must(t, err)
			defer b.Close()
			s, idle := openTestSession(t, b, time.Minute), openTestSession(t, b, time.Minute)
			h := granted(t, s, exclusive("x"))
			must(t, hurt(path))
			if _, err := s.Renew(t.Context(), []driver.Hold{h}); !errors.Is(err, driver.ErrRefused) {
				t.Errorf("Renew: %v; want ErrRefused", err)
			}
			for _, s := range []*session{s, idle} {
				select {
				case <-s.Lost():
				default:
					t.Error("a session is not notified")
				}
			}
			if _, err := b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: time.Minute}); !errors.Is(err,
				driver.ErrRefused) {
				t.Errorf("a new session: %v; want ErrRefused", err)
			}
			if name != "the folder moved" {
				refused(t, path, nil, driver.ErrRefused, "")
			}
		})
	}
}

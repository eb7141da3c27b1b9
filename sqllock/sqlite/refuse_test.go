package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// refused opens path and expects this sentinel and this text.
func refused(t *testing.T, path string, cfg *Config, want error, text string) {
	t.Helper()
	b, err := Open(path, cfg)
	if err == nil {
		b.Close()
		t.Fatalf("opened; want %v", want)
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v; want %v and %q", err, want, text)
	}
}

func TestSQLiteRefusesConfig(t *testing.T) {
	refused(t, "", nil, driver.ErrInvalid, "path")
	refused(t, storePath(t), &Config{Driver: "nosuch"}, driver.ErrInvalid, "modernc.org/sqlite")
	e := machine
	e.netFS = func(string) (string, error) { return "NFS", nil }
	path := storePath(t)
	refused(t, path, &Config{env: &e}, driver.ErrInvalid, "NFS")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("files were created on a network file system")
	}
	refused(t, t.TempDir(), nil, driver.ErrRefused, "regular")
}

func TestSQLiteRefusesForeignFiles(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	must(t, os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 400)), 0o600))
	foreign := storePath(t)
	sqliteExec(t, foreign, `PRAGMA journal_mode = WAL`, `CREATE TABLE theirs (x)`, `INSERT INTO theirs VALUES (1)`)
	newer := storePath(t)
	must(t, openTestOnce(newer))
	sqliteExec(t, newer, `PRAGMA user_version = 2`)
	for path, want := range map[string]string{text: "not made by holdfast", foreign: "expected 0x686f6c64",
		newer: "version 2, expected 1"} {
		before, err := os.ReadFile(path)
		must(t, err)
		refused(t, path, nil, driver.ErrRefused, want)
		after, err := os.ReadFile(path)
		must(t, err)
		if string(before) != string(after) {
			t.Errorf("%s: the refusal changed the file", want)
		}
		if _, err := os.Stat(path + ".run"); path != newer && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a folder was left next to a foreign file", want)
		}
	}
}

// TestSQLiteIdentifyBesideCheckpoint opens the file while another process moves its log into it:
// the header counts pages that are not there so far.
func TestSQLiteIdentifyBesideCheckpoint(t *testing.T) {
	path := storePath(t)
	must(t, openTestOnce(path))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{0, 0, 1, 0}, 28) // the number of pages
	must(t, err)
	must(t, f.Close())
	st := &store{env: machine, path: path, driver: "sqlite"}
	must(t, st.identify())
}

func sqliteExec(t *testing.T, path string, stmts ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	db.SetMaxOpenConns(1)
	for _, s := range stmts {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(s, err)
		}
	}
	must(t, db.Close())
}

func openTestOnce(path string) error {
	b, err := Open(path, nil)
	if err != nil {
		return err
	}
	return b.Close()
}

func TestSQLiteModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "locks.db")
	b := openTest(t, path, nil)
	openTestSession(t, b, time.Minute)
	for p, want := range map[string]os.FileMode{
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
		filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700, path + ".run": 0o700,
	} {
		fi, err := os.Stat(p)
		must(t, err)
		if got := fi.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o; want %o", p, got, want)
		}
	}
	files, err := os.ReadDir(path + ".run")
	must(t, err)
	for _, f := range files {
		fi, err := f.Info()
		must(t, err)
		if fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o; want 600", f.Name(), fi.Mode().Perm())
		}
	}
	if len(files) != 2 {
		t.Errorf("%d files for one session; want its socket and its lock", len(files))
	}
}

func TestSQLiteLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	b := openTest(t, filepath.Join(dir, "locks.db"), nil)
	s1, s2 := openTestSession(t, b, time.Minute), openTestSession(t, b, time.Minute)
	t.Cleanup(func() { os.Remove(b.st.run) })
	if strings.HasPrefix(b.st.run, dir) {
		t.Fatalf("sockets in %s, whose path is too long for them", b.st.run)
	}
	h := granted(t, s1, exclusive("a"))
	wake := queued(t, s2, exclusive("a"))
	must(t, s1.Release(t.Context(), h, 0))
	woken(t, wake)
}

func TestSQLiteFileReplaced(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	s := openTestSession(t, b, time.Minute)
	granted(t, s, exclusive("a"))
	must(t, os.Remove(path))
	if _, err := s.Acquire(t.Context(), exclusive("b")); !errors.Is(err, driver.ErrRefused) {
		t.Fatalf("the file is gone: %v; want ErrRefused", err)
	}
	if _, err := b.Inspect(t.Context(), "a"); !errors.Is(err, driver.ErrRefused) {
		t.Fatalf("the file is gone: %v; want ErrRefused", err)
	}
	if err := b.Close(); !errors.Is(err, driver.ErrRefused) {
		t.Fatalf("Close cannot release grants of a file that is gone: %v; want ErrRefused", err)
	}
}

func TestSQLiteBadInput(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	ctx := t.Context()
	for _, cfg := range []driver.SessionConfig{
		{ID: "", TTL: time.Second}, {ID: "UPPER", TTL: time.Second}, {ID: "../x", TTL: time.Second},
		{ID: strings.Repeat("a", 33), TTL: time.Second}, {ID: "a", TTL: 0}, {ID: "a", TTL: -1},
		{ID: "a", TTL: 25 * time.Hour},
	} {
		if _, err := b.Open(ctx, cfg); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Open(%+v): %v; want ErrInvalid", cfg, err)
		}
	}
	s := openTestSession(t, b, time.Second)
	if _, err := b.Open(ctx, driver.SessionConfig{ID: s.id, TTL: time.Second}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a session id in use: %v; want ErrInvalid", err)
	}
	bad := "\xff"
	_, errA := s.Acquire(ctx, &driver.Request{ID: "a", Name: bad, Mode: driver.Exclusive, N: 1})
	_, errI := b.Inspect(ctx, "")
	_, errS := s.SetCount(ctx, "l", -1)
	for what, err := range map[string]error{
		"Acquire": errA, "Inspect": errI, "SetCount": errS, "Cancel": s.Cancel(ctx, bad, "a"),
		"Release":  s.Release(ctx, driver.Hold{Name: "a", ID: "a", Token: 1}, -1),
		"SetLimit": b.SetLimit(ctx, "a", -1), "Break": b.Break(ctx, strings.Repeat("x", 513), 1),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", what, err)
		}
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Acquire(over, exclusive("a")); !errors.Is(err, driver.ErrUnavailable) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("an ended ctx: %v; want ErrUnavailable and its cause", err)
	}
	must(t, b.Close())
	if _, err := b.Inspect(ctx, "a"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v; want ErrClosed", err)
	}
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestSQLiteBoot(t *testing.T) {
	path := storePath(t)
	c := &clock{}
	c.now.Store(int64(time.Hour))
	c.wall.Store(1_700_000_000_000_000)
	b, err := Open(path, &Config{env: c.env()})
	must(t, err)
	s := openTestSession(t, b, time.Hour)
	held, kept := granted(t, s, exclusive("held")), exclusive("kept")
	kept.MinHold = time.Hour
	granted(t, s, kept)
	granted(t, s, permits("sem", 2, 2))
	queued(t, s, exclusive("held"))
	_, err = s.SetCount(t.Context(), "latch", 2)
	must(t, err)
	_, err = s.CountDown(t.Context(), "latch", "one")
	must(t, err)
	must(t, b.SetLimit(t.Context(), "limit", 3))
	for _, name := range []string{"quick", "slow"} {
		granted(t, s, exclusive(name))
	}
	granted(t, s, permits("limit", 2, 0))
	s.kill()
	must(t, b.Close())

	// The wall clock goes back a year, and the clock of the boot restarts.
	c.now.Store(int64(time.Second))
	c.wall.Store(1_670_000_000_000_000)
	env := c.env()
	env.boot = func() (string, error) { return "boot-2", nil }
	b = openTest(t, path, &Config{env: env})
	recs, err := b.List(t.Context(), "", "", 10)
	must(t, err)
	if len(recs) != 2 || recs[0].Name != "latch" || recs[0].Count != 1 || recs[1].Name != "limit" || recs[1].Limit != 3 ||
		!recs[1].Set || len(recs[1].Holders) > 0 {
		t.Fatalf("after a reboot: %+v; want the latch with 1 left, and the limit of 3 that is set", recs)
	}
	s = openTestSession(t, b, time.Hour)
	granted(t, s, permits("limit", 3, 0))
	if h := granted(t, s, exclusive("held")); h.Token <= held.Token+uint64(span/2) {
		t.Errorf("token %d after a reboot, %d before: a lost grant could have had it", h.Token, held.Token)
	}
	var floor int64
	must(t, b.st.r.with(t.Context(), func() error {
		r, err := readRow(b.st.r, "quick")
		floor = r.floor
		return err
	}))
	must(t, b.st.w.with(t.Context(), func() error {
		b.st.noteContended("slow", true)
		return nil
	}))
	for _, name := range []string{"quick", "slow"} {
		req := exclusive(name)
		req.Tokens = driver.MaxTokens
		if h := granted(t, s, req); int64(h.Token) != floor+driver.MaxTokens {
			t.Errorf("%s: a block up to %d after a reboot; want %d above the floor of %d", name, h.Token, driver.MaxTokens, floor)
		}
	}
	if left, err := s.CountDown(t.Context(), "latch", "one"); err != nil || left != 1 {
		t.Errorf("an id counted twice over a reboot: %d, %v", left, err)
	}
}

// TestSQLiteCeiling grants past the ceiling with both kinds of statements.
func TestSQLiteCeiling(t *testing.T) {
	c := &clock{}
	c.now.Store(int64(time.Hour))
	b := openTest(t, storePath(t), &Config{env: c.env()})
	s := openTestSession(t, b, time.Hour)
	ceiling := func() (n int64) {
		must(t, b.st.r.with(t.Context(), func() error {
			r, err := readRow(b.st.r, "x")
			n = r.ceiling
			return err
		}))
		return n
	}
	last := uint64(0)
	for i := range 10 {
		c.wall.Store(int64(i) * span * 2 / 3)
		for _, req := range []*driver.Request{exclusive("x"), permits("y", 1, 2)} {
			h := granted(t, s, req)
			if int64(h.Token) >= ceiling() {
				t.Fatalf("token %d; the ceiling is %d", h.Token, ceiling())
			}
			if req.Mode == driver.Exclusive {
				if h.Token <= last {
					t.Fatalf("token %d after %d", h.Token, last)
				}
				last = h.Token
			}
			must(t, s.Release(t.Context(), h, 0))
		}
	}
}

// TestSQLiteBusyRaise: the ceiling cannot be raised, because the file is locked. Once it is free,
// the lock is taken at once, and the earlier failure is not reported.
func TestSQLiteBusyRaise(t *testing.T) {
	c := &clock{}
	env := c.env()
	armed := false
	path := storePath(t)
	var other *sql.Conn
	env.wall = func() int64 {
		if armed {
			armed = false
			_, err := other.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
			must(t, err)
		}
		return 0
	}
	b := openTest(t, path, &Config{env: env})
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	other, err = db.Conn(t.Context())
	must(t, err)
	defer other.Close()
	quicks := 0
	err = b.st.writeOr(t.Context(), "x", func() (bool, error) {
		if quicks++; quicks == 1 {
			return false, nil
		}
		_, err := other.ExecContext(t.Context(), `ROLLBACK`)
		return true, err
	}, func(*tx) error {
		armed = true // for raise, which reads the wall clock next
		return errCeiling
	})
	if err != nil || quicks != 2 {
		t.Errorf("after %d quick tries: %v; want 2 and no error", quicks, err)
	}
}

// TestSQLiteSweep: rows of idle names are deleted, and later tokens exceed theirs.
func TestSQLiteSweep(t *testing.T) {
	c := &clock{}
	c.now.Store(int64(time.Hour))
	c.wall.Store(1000) // far behind, so that tokens come from the rows and the floor
	env := c.env()
	env.idle = time.Minute
	b := openTest(t, storePath(t), &Config{env: env})
	s := openTestSession(t, b, time.Hour)
	var last uint64
	for range 50 {
		h := granted(t, s, exclusive("x"))
		last = h.Token
		must(t, s.Release(t.Context(), h, 0))
	}
	for _, name := range lockNames(700) {
		must(t, s.Release(t.Context(), granted(t, s, exclusive(name)), 0))
	}
	granted(t, s, exclusive("held"))
	_, err := s.SetCount(t.Context(), "latch", 1)
	must(t, err)
	must(t, b.SetLimit(t.Context(), "limit", 3))
	c.now.Add(int64(2 * time.Minute))
	for more := true; more; {
		more, err = b.st.sweepRows(t.Context())
		must(t, err)
	}
	var rows int
	must(t, b.st.r.with(t.Context(), func() error {
		return b.st.r.c.QueryRowContext(t.Context(), `SELECT count(*) FROM lock`).Scan(&rows)
	}))
	if rows != 3 {
		t.Errorf("%d rows left; want the lock held, the latch, and the limit that is set", rows)
	}
	if h := granted(t, s, exclusive("x")); h.Token <= last {
		t.Errorf("token %d after the row was deleted, %d before", h.Token, last)
	}
}

// TestSQLiteVoided ends a session by another connection.
func TestSQLiteVoided(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s, other := openTestSession(t, b, time.Hour), openTestSession(t, b, time.Hour)
	h := granted(t, s, exclusive("a"))
	wake := queued(t, other, exclusive("a"))
	must(t, b.st.removeSession(t.Context(), s.id))
	woken(t, wake)
	if _, err := s.Renew(t.Context(), []driver.Hold{h}); !errors.Is(err, driver.ErrClosed) {
		t.Fatalf("Renew of an ended session: %v; want ErrClosed", err)
	}
	select {
	case <-s.Lost():
	default:
		t.Error("Lost is not closed")
	}
	if _, err := s.Acquire(t.Context(), exclusive("b")); !errors.Is(err, driver.ErrClosed) {
		t.Fatalf("Acquire of an ended session: %v; want ErrClosed", err)
	}
}

// TestSQLiteFilesRemoved removes a live session's files. The session is not considered dead, and
// has new files after its next renewal.
func TestSQLiteFilesRemoved(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s, other := openTestSession(t, b, time.Hour), openTestSession(t, b, time.Hour)
	h := granted(t, s, exclusive("a"))
	wake := queued(t, other, exclusive("a"))
	must(t, os.Remove(s.endpoint.filePath))
	must(t, os.WriteFile(s.endpoint.filePath, nil, 0o600)) // a file that nobody has locked
	must(t, os.Remove(s.endpoint.bellPath))
	at := &address{bell: s.st.addressOf(s.endpoint.bellPath), file: s.st.addressOf(s.endpoint.filePath),
		inode: int64(s.endpoint.presence.Inode())}
	if b.st.removeIfDead(t.Context(), s.id, at) {
		t.Fatal("considered dead because its file was replaced")
	}
	if _, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil {
		t.Fatal(err)
	}
	if !s.endpoint.presence.Intact() || !s.endpoint.bell.Intact() {
		t.Fatal("no new files after a renewal")
	}
	select {
	case token := <-wake:
		t.Fatalf("handed over (%d) though the holder is alive", token)
	default:
	}
	s.kill()
	woken(t, wake)
}

// TestSQLiteOrphans: opening a session removes the files of dead sessions.
func TestSQLiteOrphans(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	for range 5 {
		openTestSession(t, b, time.Hour).kill()
	}
	e, err := b.st.newEndpoint() // of a process that died before it was recorded
	must(t, err)
	e.presence.Drop()
	e.bell.Drop()
	openTestSession(t, b, time.Hour)
	until(t, func() error {
		files, err := os.ReadDir(b.st.run)
		if err == nil && len(files) != 2 {
			b.st.upkeep.sweepSoon()
			err = fmt.Errorf("%d files; want 2", len(files))
		}
		return err
	})
}

// until waits for a condition.
func until(t testing.TB, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for err := ok(); err != nil; err = ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

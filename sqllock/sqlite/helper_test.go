package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	_ "modernc.org/sqlite"
)

// kill ends a session as the end of its process would: its descriptors close, and its files stay.
func (s *session) kill() {
	if !s.end() {
		return
	}
	s.st.forget(s.id)
	s.mu.Lock()
	e := s.endpoint
	s.mu.Unlock()
	e.presence.Drop()
	e.bell.Drop()
	s.wg.Wait()
	s.b.forget(s)
}

// clock is a clock that tests set.
type clock struct{ now, wall atomic.Int64 }

func (c *clock) env() *env {
	e := machine
	e.now, e.wall = c.now.Load, c.wall.Load
	e.idle = 1000 * time.Hour
	e.boot = func() (string, error) { return "boot-1", nil }
	return &e
}

func storePath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "locks.db")
}

func openTest(t testing.TB, path string, cfg *Config) *Backend {
	t.Helper()
	b, err := Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closed(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// closed closes a Backend and its sessions. Its own Close gives all sessions a second, which a slow disk
// may exceed.
func closed(b *Backend) error {
	b.mu.Lock()
	sessions := slices.Collect(maps.Keys(b.open))
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	for _, s := range sessions {
		err = errors.Join(err, s.Close(ctx))
	}
	return errors.Join(err, b.Close())
}

func newID() string { return strings.ToLower(rand.Text()) }

func openTestSession(t testing.TB, b *Backend, ttl time.Duration) *session {
	t.Helper()
	s, err := b.Open(t.Context(), driver.SessionConfig{ID: newID(), TTL: ttl, Info: `{"note":"test"}`})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*session)
}

func exclusive(name string) *driver.Request {
	return &driver.Request{ID: newID(), Name: name, Mode: driver.Exclusive, N: 1, Wait: true}
}

func permits(name string, n, limit int) *driver.Request {
	return &driver.Request{ID: newID(), Name: name, Mode: driver.Permits, N: n, Limit: limit, Wait: true}
}

func holdOf(req *driver.Request, token uint64) driver.Hold {
	return driver.Hold{Name: req.Name, ID: req.ID, Token: token}
}

// granted asks for req and fails the test unless the grant is immediate.
func granted(t testing.TB, s driver.Session, req *driver.Request) driver.Hold {
	t.Helper()
	rep, err := s.Acquire(context.Background(), req)
	if err != nil || rep.Token == 0 {
		t.Fatalf("acquire %s: %+v, %v; want a grant", req.Name, rep, err)
	}
	return holdOf(req, rep.Token)
}

// queued asks for req and fails the test unless it must wait.
func queued(t testing.TB, s driver.Session, req *driver.Request) <-chan uint64 {
	t.Helper()
	rep, err := s.Acquire(context.Background(), req)
	if err != nil || rep.Token != 0 || rep.Wake == nil {
		t.Fatalf("acquire %s: %+v, %v; want a place in the queue", req.Name, rep, err)
	}
	return rep.Wake
}

// patience bounds how long a test waits for an event. Leases that must outlast the test are much
// longer.
const patience = time.Minute

func woken(t testing.TB, wake <-chan uint64) uint64 {
	t.Helper()
	select {
	case token := <-wake:
		return token
	case <-time.After(patience):
		t.Fatalf("not woken within %v", patience)
		return 0
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkIntegrity(t testing.TB, b *Backend) {
	t.Helper()
	var text string
	must(t, b.st.r.with(t.Context(), func() error {
		return b.st.r.c.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&text)
	}))
	if text != "ok" {
		t.Fatal("integrity: ", text)
	}
	checkSums(t, b)
}

// checkSums compares the sums in the rows of lock with the rows that they sum up.
func checkSums(t interface{ Fatal(...any) }, b *Backend) {
	ctx := context.Background()
	var drift int
	err := b.st.r.with(ctx, func() error {
		return b.st.r.c.QueryRowContext(ctx, `SELECT count(*) FROM lock WHERE
			holders <> (SELECT count(*) FROM hold h WHERE h.name = lock.name) OR
			used <> (SELECT ifnull(sum(n), 0) FROM hold h WHERE h.name = lock.name) OR
			waiting <> (SELECT count(*) FROM place p WHERE p.name = lock.name) OR
			due > (SELECT min(deadline) FROM place p WHERE p.name = lock.name)`).Scan(&drift)
	})
	if err != nil || drift > 0 {
		t.Fatal("rows of lock whose sums are wrong: ", drift, err)
	}
}

func lockNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("job/%d", i)
	}
	return names
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/open"
)

// revocable returns a client and a lease of it.
func revocable(t *testing.T) (*holdfast.Client, *holdfast.Lease) {
	t.Helper()
	c, err := holdfast.New(t.Context(), memlock.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

// When stop returns, nothing is reported any more: the caller then closes the queue of reports. A
// report that is under way delays it.
func TestNoReportAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := revocable(t)
		task := &task{a: &app{stderr: t.Output()}, o: &taskOptions{}}
		reporting, goOn := make(chan struct{}), make(chan struct{})
		asked, stop := task.tellRevoked(&hold{lease: l, parts: []*holdfast.Lease{l}}, func(func()) {
			close(reporting)
			<-goOn
		})
		if err := c.Revoke(t.Context(), "x", l.Token(), "why"); err != nil {
			t.Fatal(err)
		}
		<-asked
		<-reporting
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stop has returned while a report was under way")
		default:
		}
		close(goOn)
		<-stopped
		if err := errors.Join(l.Release(), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A command may end because of a request, or lose its lease after it, before the request has been
// reported. It is reported all the same, but nothing is said of what happens next.
func TestReportAfterTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := revocable(t)
		h := &hold{lease: l, parts: []*holdfast.Lease{l}}
		if err := c.Revoke(t.Context(), "x", l.Token(), "why"); err != nil {
			t.Fatal(err)
		}
		<-holdfast.Revoked(l.Context(t.Context()))
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		task := &task{a: &app{stderr: &said}, o: &taskOptions{}}
		const commands = 100
		for range commands {
			_, stop := task.tellRevoked(h, func(report func()) { report() })
			stop()
		}
		begin, end := strings.Count(said.String(), "x: asked to release it by "), strings.Count(said.String(), ": \"why\"\n")
		if begin != commands || end != commands {
			t.Errorf("%d of %d commands report the request, %d end with the reason: %s", begin, commands, end, said.String())
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// onlyOne is a store that takes what belongs to the first request, and refuses that of the second.
type onlyOne struct {
	driver.Backend
	added atomic.Int32
}

func (s *onlyOne) AddHistory(ctx context.Context, name, text string, keep int) error {
	if s.added.Add(1) > 2 { // a request takes two entries
		return fmt.Errorf("%w: enough", driver.ErrRefused)
	}
	return s.Backend.AddHistory(ctx, name, text, keep)
}

// If one of several holders cannot be asked, the others that were asked are reported all the same.
func TestRevokeOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := holdfast.New(t.Context(), &onlyOne{Backend: memlock.New()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var readers []*holdfast.Lease
		for range 2 {
			l, err := c.RWMutex("x").RLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, l)
		}
		var out strings.Builder
		s := &session{Client: c, say: t.Logf}
		err = s.revoke(t.Context(), &out, "x", &revokeOptions{wait: seconds{set: true}})
		if !errors.Is(err, holdfast.ErrRefused) {
			t.Errorf("revoke: %v; want ErrRefused", err)
		}
		if text := out.String(); strings.Count(text, "asked: x, token ") != 1 || strings.Count(text, "\n") != 1 {
			t.Errorf("reported %q; want one of %d and %d", text, readers[0].Token(), readers[1].Token())
		}
		if err := errors.Join(readers[0].Release(), readers[1].Release(), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A second request says that the holder was asked before, by whom and when: the holder sees one only.
func TestRevokeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := revocable(t)
		s := &session{Client: c, say: t.Logf}
		revoke := func(reason string) string {
			var out strings.Builder
			if err := s.revoke(t.Context(), &out, "x", &revokeOptions{reason: reason}); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		if text := revoke("first"); strings.Contains(text, "before") {
			t.Errorf("the first request: %s", text)
		}
		time.Sleep(7 * time.Second)
		again := fmt.Sprintf("\nIt was asked before, by %s, 7s ago: \"first\". A holder is told of one", me(t, c))
		if text := revoke("second"); !strings.Contains(text, again) {
			t.Errorf("the second request: %s; want %s", text, again)
		}
		time.Sleep(10 * time.Second)
		if n := l.Revocation(); n == nil || n.Reason != "first" {
			t.Errorf("the holder was told of %v; want the first request", n)
		}
		if err := errors.Join(l.Release(), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// What is said of a holder that has not released in time is of one reading: its lease counts down while the
// time that it holds counts up, and it is never below zero.
func TestRevokeOfASilentHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		dead, err := store.Open(t.Context(), driver.SessionConfig{ID: "s", TTL: 15 * time.Second}) // renews nothing
		if err != nil {
			t.Fatal(err)
		}
		info := (&driver.Info{Host: "h", PID: 7}).String()
		r := &driver.Request{ID: "1", Name: "x", Mode: driver.Exclusive, N: 1, Info: info}
		if _, err := dead.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &session{Client: c, say: t.Logf}
		err = s.revoke(t.Context(), t.Output(), "x", &revokeOptions{wait: seconds{set: true, d: 4 * time.Second}})
		if err == nil || err.Error() != "x is still held by h:7 for 4s · lease 11s" {
			t.Errorf("revoke --wait: %v", err)
		}
		last := &atomic.Pointer[reading]{}
		over := make(chan time.Time)
		time.AfterFunc(2*time.Second, func() { close(over) })
		s.store = &open.Store{Backend: store}
		err = (&app{stderr: t.Output()}).untilFree(t.Context(), s, "x", over, last)
		if err == nil || err.Error() != "x is still held by h:7 for 6s · lease 9s" {
			t.Errorf("wait: %v", err)
		}
		time.Sleep(time.Minute)
		if h := last.Load().holder(); rough(h.Left) != "0s" || rough(time.Since(h.Since)) != "1m6s" {
			t.Errorf("a minute after the reading: %s", describe(h))
		}
		if err := errors.Join(dead.Close(t.Context()), c.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// me returns the client of a lock as messages name it.
func me(t *testing.T, c *holdfast.Client) string {
	t.Helper()
	r, err := c.Inspect(t.Context(), "x")
	if err != nil || len(r.Holders) != 1 {
		t.Fatalf("%v, %v", r.Holders, err)
	}
	return who(&r.Holders[0])
}

// partial is a store that has only grants at too few servers of a quorum.
type partial struct{ driver.Backend }

func (partial) Inspect(context.Context, string) (driver.Record, error) {
	part := []driver.Holder{{ID: "a", N: 1, Token: 3, Partial: true}}
	return driver.Record{Name: "x", Kind: driver.Lock, Partial: part}, nil
}

// A refusal of revoke says why a grant that info shows is no holder.
func TestRevokeOfPartial(t *testing.T) {
	c, err := holdfast.New(t.Context(), partial{memlock.New()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	_, err = (&session{Client: c}).ask(t.Context(), "x", &revokeOptions{})
	const want = "x: nobody holds it; a grant at too few servers of the quorum ends by itself"
	if err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

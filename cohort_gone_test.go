package holdfast

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// lineOf opens a client for holdWithLine.
func lineOf(t *testing.T, b driver.Backend, n int) (c *Client, l *Lease, line <-chan *Lease) {
	c, err := New(t.Context(), b, &Config{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // the test may have broken the lock
	l, line = holdWithLine(t, c, n)
	return c, l, line
}

// holdWithLine makes c hold x under a grant with a block of tokens, with n more calls in line.
func holdWithLine(t *testing.T, c *Client, n int) (l *Lease, line <-chan *Lease) {
	all := make(chan *Lease, n+2)
	for range n + 2 {
		go func() {
			l, err := c.Mutex("x").Lock(context.Background())
			if err != nil {
				t.Error(err)
			}
			all <- l
		}()
		synctest.Wait()
	}
	for range 2 { // the first has asked for itself, the second for all
		if l != nil && l.Release() != nil {
			t.Fatal("not released")
		}
		l = <-all
	}
	return l, all
}

// The store reports that a grant is gone, between the end of its lease and the pass to the next one.
func TestGoneWhileReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, l, line := lineOf(t, store, 2)
		if err := store.Break(t.Context(), "x", l.grantToken); err != nil {
			t.Fatal(err)
		}
		grant := driver.Hold{Name: "x", ID: l.req.ID, Token: l.grantToken}
		if prior := c.end(l, &Error{Op: "use", Name: "x", Err: ErrReleased}); prior != nil {
			t.Fatal(prior)
		}
		s := c.session.Load()
		changes, err := s.Renew(t.Context(), []driver.Hold{grant})
		if err != nil {
			t.Fatal(err)
		}
		r := &renewal{sent: c.coarseNow(), holds: []driver.Hold{grant}, leases: []*Lease{l}}
		if err := c.apply(s, r, changes, nil); err != nil {
			t.Fatal(err)
		}
		if l.passOn() {
			t.Error("a grant that is gone has been passed on")
		}
		next := <-line // it has asked the store
		if next.grantToken <= l.grantToken {
			t.Errorf("token %d after %d is gone", next.grantToken, l.grantToken)
		}
		_ = next.Release()
		_ = (<-line).Release()
	})
}

// extending is a store whose renewals call before first.
type extending struct {
	driver.Backend
	before func()
}

func (b *extending) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &extendingSession{s, b}, err
}

type extendingSession struct {
	driver.Session
	b *extending
}

func (s *extendingSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if f := s.b.before; f != nil {
		s.b.before = nil
		f()
	}
	return s.Session.Renew(ctx, holds)
}

// Extend of a lease learns that the grant is gone, while the lease is passed on.
func TestGoneWhileExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		b := &extending{Backend: store}
		_, l, line := lineOf(t, b, 2)
		var next *Lease
		b.before = func() {
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			next = <-line
			if next.grantToken != l.grantToken {
				t.Error("it has not been passed on")
			}
			if err := store.Break(t.Context(), "x", l.grantToken); err != nil {
				t.Error(err)
			}
		}
		if err := l.Extend(time.Hour); !errors.Is(err, ErrReleased) {
			t.Errorf("Extend = %v", err)
		}
		if err := next.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("the lease that has its grant now: %v; want ErrLost", err)
		}
		_ = (<-line).Release()
	})
}

// The first of the line asks when the time of passes is over, also if the clock is slow: the time that
// the machine has slept is read with an error, which changes.
func TestPassesEndBySlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		slept.Store(int64(time.Second + time.Millisecond))
		store := memlock.New()
		c, err := newClient(t.Context(), store, &Config{TTL: 10 * time.Second}, func() time.Duration {
			return time.Duration(slept.Load())
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(t.Context()) }()
		l, line := holdWithLine(t, c, 2)
		slept.Add(-int64(time.Millisecond))
		c.now()
		time.Sleep(time.Second)
		if r, err := c.Inspect(t.Context(), "x"); err != nil || r.Waiting != 1 {
			t.Errorf("%d wait at the store, %v; want the first of the line", r.Waiting, err)
		}
		_ = l.Release()
		_ = (<-line).Release()
		_ = (<-line).Release()
	})
}

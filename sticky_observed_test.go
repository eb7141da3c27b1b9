package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// The Observer hears of each sticky lease once, and of each end once. It hears of no idle grant.
func TestStickyIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acquired, ended, waits atomic.Int64
		store := memlock.New()
		c := client(t, store, &holdfast.Config{Observer: &holdfast.Observer{
			Acquired:   func(string, uint64, time.Duration) { acquired.Add(1) },
			LeaseEnded: func(holdfast.LeaseEnd) { ended.Add(1) },
			WaitEnded:  func(context.Context, holdfast.WaitEnd) { waits.Add(1) },
		}})
		other := client(t, store, nil)
		m := c.Mutex("x", sticky())
		n := int64(0)
		check := func(what string) {
			t.Helper()
			synctest.Wait()
			if a, e, w := acquired.Load(), ended.Load(), waits.Load(); a != n || e != n || w != n {
				t.Errorf("%s: %d leases, %d ends, %d waits; want %d of each", what, a, e, w, n)
			}
		}
		for range 500 {
			takeX(t, c, sticky())
			n++
		}
		check("taken again and again")
		l := lock(t, c, "x", sticky())
		all := queue(t, c, 50, sticky())
		turns(t, l, all...)
		n += 51
		check("passed")
		takeX(t, other)
		check("called back")
		takeX(t, c, sticky())
		n++
		time.Sleep(2 * idleFor)
		check("idle for d")
		for range 3 {
			if err := m.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			n++
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		check("closed")
	})
}

// Borrowed leases end with the sticky lease that they were borrowed from. Its grant stays, and a context of
// the earlier lease borrows nothing from a later one.
func TestStickyIsReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c := client(t, store, nil)
		m := c.Mutex("x", sticky(), holdfast.Reentrant())
		outer := must(m.Lock(t.Context()))(t)
		ctx := outer.Context(t.Context())
		inner := must(m.Lock(ctx))(t)
		if inner.Token() != outer.Token() {
			t.Errorf("borrowed with the token %d of %d", inner.Token(), outer.Token())
		}
		release(t, outer)
		if err := inner.Err(); !errors.Is(err, holdfast.ErrReleased) || ctx.Err() == nil {
			t.Errorf("a borrowed lease after the release of the other: %v", err)
		}
		later := must(m.Lock(context.WithoutCancel(ctx)))(t)
		if later.Token() <= outer.Token() || n.Load() != 1 {
			t.Errorf("token %d after %d, %d exchanges; want a later one from the idle grant", later.Token(), outer.Token(), n.Load())
		}
		_ = inner.Release()
		if err := later.Err(); err != nil {
			t.Errorf("the release of a borrowed lease has ended a later one: %v", err)
		}
		release(t, later)
	})
}

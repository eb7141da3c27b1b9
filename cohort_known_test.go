package holdfast_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// answering is a store whose Acquire does what the test says: nil is to ask.
func answering(store driver.Backend) (*hooks, *atomic.Pointer[func(context.Context) error]) {
	var do atomic.Pointer[func(context.Context) error]
	return &hooks{Backend: store,
		acquire: func(ctx context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			if f := do.Load(); f != nil {
				return driver.Reply{}, (*f)(ctx)
			}
			return next()
		}}, &do
}

func hangs(ctx context.Context) error { <-ctx.Done(); return unanswered(ctx) }

func unavailable(context.Context) error { return driver.ErrUnavailable }

// waitAtMost is the error of a call for x, which waits for at most d.
func waitAtMost(t *testing.T, c *holdfast.Client, name string, d time.Duration) (h *holdfast.Holder, err error) {
	t.Helper()
	within(t, "WaitAtMost", d, d, func() {
		_, err = c.Mutex(name, holdfast.WaitAtMost(d)).Lock(t.Context())
	})
	if e := (*holdfast.Error)(nil); errors.As(err, &e) {
		h = e.Holder
	}
	return h, err
}

// inBackground calls Lock, until the test ends.
func inBackground(t *testing.T, ctx context.Context, c *holdfast.Client, name string) {
	go func() {
		if l, err := c.Mutex(name).Lock(ctx); err == nil {
			_ = l.Release()
		}
	}()
	synctest.Wait()
}

// A call in line learns from the call that asks whether the lock is held, by whom, or that the store
// does not answer.
func TestLineKnows(t *testing.T) {
	for name, f := range map[string]func(context.Context) error{"silent": hangs, "unavailable": unavailable} {
		t.Run("a store that has never answered: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, do := answering(memlock.New())
				do.Store(&f)
				c := client(t, h, nil)
				inBackground(t, t.Context(), c, "x")
				holder, err := waitAtMost(t, c, "x", ttl/3)
				if errors.Is(err, holdfast.ErrHeld) || holder != nil ||
					!errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("WaitAtMost: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = c.Mutex("x").Lock(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("with a deadline: %v", err)
				}
				if name == "unavailable" && !strings.Contains(err.Error(), driver.ErrUnavailable.Error()) {
					t.Errorf("with a deadline: %v; want the failure of the store as well", err)
				}
			})
		})
	}
	t.Run("a store that becomes silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h, do := answering(store)
			c, other := client(t, h, nil), client(t, store, nil)
			his := lock(t, other, "x")
			inBackground(t, t.Context(), c, "x")
			if holder, err := waitAtMost(t, c, "x", 2*ttl); !errors.Is(err, holdfast.ErrHeld) || holder == nil ||
				holder.Token != his.Token() {
				t.Errorf("WaitAtMost: %v", err)
			}
			h.renew = func(ctx context.Context, _ []driver.Hold, _ func() ([]driver.Change, error)) ([]driver.Change, error) {
				return nil, hangs(ctx)
			}
			f := hangs
			do.Store(&f)
			if _, err := waitAtMost(t, c, "x", ttl*9/10); !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("WaitAtMost: %v", err)
			}
		})
	})
	t.Run("a call of this client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, do := answering(memlock.New())
			c := client(t, h, nil)
			mine := lock(t, c, "x")
			f := unavailable
			do.Store(&f)
			inBackground(t, t.Context(), c, "x")
			if holder, err := waitAtMost(t, c, "x", ttl/2); !errors.Is(err, holdfast.ErrHeld) || holder == nil ||
				holder.Token != mine.Token() {
				t.Errorf("WaitAtMost: %v", err)
			}
		})
	})
	for name, wait := range map[string]time.Duration{"just now": 300 * time.Millisecond, "before": 2 * time.Second} {
		t.Run("a call of this client had it "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, do := answering(memlock.New())
				c := client(t, h, nil)
				mine := lock(t, c, "x")
				f := hangs
				do.Store(&f)
				inBackground(t, t.Context(), c, "x")
				time.AfterFunc(wait/3, func() { release(t, mine) })
				want := holdfast.ErrHeld
				if wait > time.Second {
					want = holdfast.ErrUncertain
				}
				if _, err := waitAtMost(t, c, "x", wait); !errors.Is(err, want) {
					t.Errorf("WaitAtMost: %v; want %v", err, want)
				}
			})
		})
	}
	t.Run("the holder of another lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h, do := answering(store)
			c, other := client(t, h, nil), client(t, store, nil)
			lock(t, other, "x")
			waitAtMost(t, c, "x", time.Second)
			f := hangs
			do.Store(&f)
			inBackground(t, t.Context(), c, "y")
			if holder, err := waitAtMost(t, c, "y", time.Second); holder != nil || errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("WaitAtMost for y: %v", err)
			}
		})
	})
}

// A call that takes over a place knows since when the holder has the lock.
func TestBequeathedPlaceIsKnown(t *testing.T) {
	for _, heirs := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			c, other := client(t, store, nil), client(t, store, nil)
			time.Sleep(time.Hour)
			since := time.Now()
			lock(t, other, "x")
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range heirs { // all but the last give up at once
				inBackground(t, ctx, c, "x")
			}
			if holder, err := waitAtMost(t, c, "x", 25*time.Second); holder == nil || !holder.Since.Equal(since) {
				t.Errorf("%v; want a holder since %v", err, since)
			}
		})
	}
}

// laterContext has a deadline, and ends some time after it, as contexts do whose timer is late.
type laterContext struct {
	context.Context
	deadline time.Time
}

func (c laterContext) Deadline() (time.Time, bool) { return c.deadline, true }

// The deadline of the call that asks is no error of those in line.
func TestLineHasItsOwnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, do := answering(memlock.New())
		f := unavailable
		do.Store(&f)
		c := client(t, h, nil)
		inBackground(t, laterContext{t.Context(), time.Now().Add(ttl)}, c, "x")
		if _, err := c.Mutex("x").Lock(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call without a deadline: %v", err)
		}
	})
}

// Wanted knows how many calls are before one in line.
func TestWantedInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		check := func(want ...int) {
			t.Helper()
			w := c.Wanted()
			slices.SortFunc(w, func(a, b holdfast.WantedLock) int { return cmp.Compare(a.Ahead, b.Ahead) })
			if !slices.EqualFunc(w, want, func(a holdfast.WantedLock, n int) bool { return a.Ahead == n }) {
				t.Errorf("Wanted = %+v; want %v before each", w, want)
			}
		}
		l := lock(t, c, "x")
		all := queue(t, c, 5)
		check(0, 1, 2, 3, 4)
		release(t, l)
		l = acquired(t, "the first", all[0])
		check(0, 1, 2, 3) // the second asks the store
		release(t, l)
		l = acquired(t, "the second", all[1])
		check(0, 1, 2)
		turns(t, l, all[2:]...)
	})
}

package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/rule"
	"github.com/holdfast-lock/holdfast/memlock"
)

// permitsOnRecord returns how many permits each holder of s has.
func permitsOnRecord(t testing.TB, c *holdfast.Client) (n []int) {
	t.Helper()
	r, err := c.Inspect(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Holders {
		n = append(n, h.Permits)
	}
	return n
}

func hasPermits(t testing.TB, c *holdfast.Client, l *holdfast.Lease, want int) {
	t.Helper()
	if n := permitsOnRecord(t, c); l.Err() != nil || l.Permits() != want || len(n) == 0 || n[0] != want {
		t.Errorf("the lease: %d, %v; on record: %v; want %d", l.Permits(), l.Err(), n, want)
	}
}

func giveBack(t testing.TB, l *holdfast.Lease, n int) {
	t.Helper()
	if err := l.ReleasePermits(n); err != nil {
		t.Fatalf("ReleasePermits(%d): %v", n, err)
	}
}

// Permits that are given back go to waiters in order; the lease goes on with the others.
func TestReleasePermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		s := c.Semaphore("s", 5)
		l := take(t)(s.Acquire(t.Context(), 5))
		token := l.Token()
		two := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(ctx, 2) })
		stillWaiting(t, "2 of 5, beside 5", two)
		one := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(ctx, 1) })
		giveBack(t, l, 1)
		stillWaiting(t, "2 of 5, beside 4", two)
		stillWaiting(t, "1 of 5, behind the 2", one)
		giveBack(t, l, 2)
		release(t, acquired(t, "2 of 5, beside 2", two))
		release(t, acquired(t, "1 of 5", one))
		time.Sleep(10 * ttl) // it is renewed as before
		hasPermits(t, c, l, 2)
		if l.Token() != token {
			t.Errorf("token %d; want %d", l.Token(), token)
		}
		rest := take(t)(s.TryAcquire(t.Context(), 3))
		refused(t, holdfast.ErrHeld)(s.TryAcquire(t.Context(), 1))
		release(t, rest)
		release(t, l)
		release(t, take(t)(s.TryAcquire(t.Context(), 5)))
		if err := l.ReleasePermits(1); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("after Release: %v", err)
		}
	})
}

func TestReleasePermitsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := take(t)(c.Semaphore("s", 3).Acquire(t.Context(), 3))
		x := lock(t, c, "x")
		inside := take(t)(c.Semaphore("s", 3, holdfast.Reentrant()).Acquire(l.Context(t.Context()), 2))
		for what, err := range map[string]error{
			"none": l.ReleasePermits(0), "fewer than none": l.ReleasePermits(-1), "all": l.ReleasePermits(3),
			"of a mutex": x.ReleasePermits(1), "borrowed": inside.ReleasePermits(1), "lent": l.ReleasePermits(2),
			"of nothing": (*holdfast.Lease)(nil).ReleasePermits(1),
		} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%s: %v; want ErrInvalid", what, err)
			}
		}
		hasPermits(t, c, l, 3)
		giveBack(t, l, 1)
		release(t, inside)
		giveBack(t, l, 1)
		hasPermits(t, c, l, 1)
		// What the context holds counts as it is now.
		release(t, take(t)(c.Semaphore("s", 3, holdfast.Reentrant()).Acquire(l.Context(t.Context()), 2)))
		refused(t, holdfast.ErrDeadlock)(c.Semaphore("s", 3).Acquire(l.Context(t.Context()), 3))
	})
}

// Permits with a minimum hold stay taken until it is over.
func TestReleasePermitsWithinMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := take(t)(c.Semaphore("s", 3, holdfast.MinHold(time.Minute)).Acquire(t.Context(), 3))
		time.Sleep(time.Minute - time.Second)
		if err := l.ReleasePermits(1); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("within the minimum hold: %v", err)
		}
		hasPermits(t, c, l, 3)
		time.Sleep(time.Second)
		giveBack(t, l, 1)
		hasPermits(t, c, l, 2)
	})
}

// A reduction within a minimum hold that was not answered goes on in the background until that is
// over, also with a clock of the store that is behind, and does not hold up Close.
func TestReleasePermitsWithinMinHoldAnswerLost(t *testing.T) {
	for _, first := range []error{driver.ErrUncertain, driver.ErrRefused} {
		synctest.Test(t, func(t *testing.T) {
			tries, late := 0, time.Duration(0)
			var since time.Time
			h := &hooks{Backend: memlock.New(), reduce: func(n int, next func() error) error {
				if tries++; tries == 1 {
					return first
				}
				if time.Since(since) < late {
					return rule.ErrMinHold
				}
				return next()
			}}
			c := client(t, h, nil)
			s := c.Semaphore("s", 5, holdfast.MinHold(time.Minute))
			take2 := func() *holdfast.Lease {
				tries, since = 0, time.Now()
				l := take(t)(s.Acquire(t.Context(), 5))
				if err := l.ReleasePermits(2); !errors.Is(err, first) {
					t.Errorf("ReleasePermits: %v; want %v", err, first)
				}
				synctest.Wait() // the background task pauses
				return l
			}
			late = time.Minute + 3*ttl
			l := take2()
			time.Sleep(late - time.Second)
			if n := permitsOnRecord(t, c); l.Permits() != 3 || n[0] != 5 {
				t.Errorf("within the minimum hold: the lease: %d; on record: %v", l.Permits(), n)
			}
			time.Sleep(3 * time.Second)
			hasPermits(t, c, l, 3)
			asked := tries
			time.Sleep(time.Minute)
			if tries != asked || tries > 50 {
				t.Errorf("asked %d times; %d times after the answer", asked, tries-asked)
			}
			giveBack(t, l, 1)
			release(t, l)

			late = 0
			release(t, take2()) // the task ends with the lease
			asked = tries
			time.Sleep(2 * time.Minute)
			if tries > asked {
				t.Error("a lease that was released is reduced")
			}
			take2()
			time.Sleep(time.Second) // until the task pauses
			within(t, "Close", 0, time.Second, func() {
				if err := c.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// After a lost answer the client repeats how many remain, not how many are given back.
func TestReleasePermitsAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		h := &hooks{Backend: memlock.New(), reduce: func(n int, next func() error) error {
			told = append(told, n)
			if err := next(); len(told) > 1 {
				return err
			}
			return driver.ErrUncertain
		}}
		c := client(t, h, nil)
		l := take(t)(c.Semaphore("s", 5).Acquire(t.Context(), 5))
		giveBack(t, l, 2)
		hasPermits(t, c, l, 3)
		if !slices.Equal(told, []int{3, 3}) {
			t.Errorf("told %v; want 3, twice", told)
		}
	})
}

// The store gets a reduction after a later one, and after the grant has been adopted. Neither gives
// permits to anybody, or takes any.
func TestReleasePermitsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var delay atomic.Int64 // tasks in the background read it, too
		delay.Store(int64(time.Minute))
		h := &hooks{Backend: store, late: func(what string) time.Duration {
			if what != "reduce" {
				return 0
			}
			return time.Duration(delay.Load())
		}}
		c, other := client(t, h, nil), client(t, store, nil)
		l := take(t)(c.Semaphore("s", 5).Acquire(t.Context(), 5))
		if err := l.ReleasePermits(1); !errors.Is(err, holdfast.ErrUncertain) {
			t.Fatalf("ReleasePermits of a silent store: %v", err)
		}
		if l.Permits() != 4 {
			t.Errorf("%d permits; want 4, whatever the store knows", l.Permits())
		}
		delay.Store(0)
		giveBack(t, l, 2)
		hasPermits(t, c, l, 2)
		time.Sleep(2 * time.Minute)
		hasPermits(t, c, l, 2)
		delay.Store(int64(time.Minute))
		if err := l.ReleasePermits(1); !errors.Is(err, holdfast.ErrUncertain) {
			t.Fatalf("ReleasePermits of a silent store: %v", err)
		}
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		got := take(t)(other.Adopt(t.Context(), ticket))
		hasPermits(t, other, got, 2) // what the store has: the reduction has not arrived
		time.Sleep(2 * time.Minute)
		hasPermits(t, other, got, 2)
	})
}

// A reduction that was not answered goes on in the background.
func TestReleasePermitsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		c, other := client(t, conn, nil), client(t, store, nil)
		l := take(t)(c.Semaphore("s", 5).Acquire(t.Context(), 5))
		heal := conn.Cut()
		within(t, "the call", 0, ttl/2, func() {
			if err := l.ReleasePermits(4); !errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("ReleasePermits while cut off: %v", err)
			}
		})
		heal()
		within(t, "the permits", 0, ttl/2, func() {
			release(t, take(t)(other.Semaphore("s", 5, holdfast.WaitAtMost(ttl)).Acquire(t.Context(), 4)))
		})
		hasPermits(t, other, l, 1)
	})
}

// A lease that is handed off or taken up again has the permits that remain.
func TestReleasePermitsAndTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		l := take(t)(a.Semaphore("s", 5).Acquire(t.Context(), 5))
		ticket, err := l.Ticket()
		if err != nil {
			t.Fatal(err)
		}
		giveBack(t, l, 2)
		resumed := take(t)(b.Resume(t.Context(), ticket))
		hasPermits(t, b, resumed, 3)
		giveBack(t, resumed, 1)
		if ticket, _, err = resumed.HandOff(); err != nil {
			t.Fatal(err)
		}
		got := take(t)(a.Adopt(t.Context(), ticket))
		hasPermits(t, a, got, 2)
		if got.Token() != l.Token() {
			t.Errorf("token %d; want %d", got.Token(), l.Token())
		}
		time.Sleep(3 * ttl)
		hasPermits(t, a, got, 2)
		release(t, take(t)(b.Semaphore("s", 5).TryAcquire(t.Context(), 3)))
	})
}

// A grant that somebody broke has no permits to give back.
func TestReleasePermitsOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := take(t)(c.Semaphore("s", 5).Acquire(t.Context(), 5))
		if err := c.Break(t.Context(), "s", l.Token(), ""); err != nil {
			t.Fatal(err)
		}
		next := take(t)(c.Semaphore("s", 5).Acquire(t.Context(), 5))
		isLost(t, l.ReleasePermits(1), holdfast.ReasonBroken)
		isLost(t, l.Err(), holdfast.ReasonBroken)
		hasPermits(t, c, next, 5)
	})
}

// Of calls at once each gives back what it says, and nobody borrows what has been given back.
func TestReleasePermitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		s := c.Semaphore("s", 8, holdfast.Reentrant())
		for range 50 {
			l := take(t)(s.Acquire(t.Context(), 8))
			var errs [3]error
			var borrowed *holdfast.Lease
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = l.ReleasePermits(1) })
			}
			all.Go(func() { borrowed, _ = s.TryAcquire(l.Context(t.Context()), 6) })
			all.Wait()
			left := 8
			for _, err := range errs {
				switch {
				case err == nil:
					left--
				case borrowed == nil || !errors.Is(err, holdfast.ErrInvalid):
					t.Errorf("ReleasePermits: %v", err)
				}
			}
			hasPermits(t, c, l, left)
			if borrowed != nil && left < 6 {
				t.Errorf("a lease of %d permits has lent 6", left)
			}
			release(t, l)
		}
	})
}

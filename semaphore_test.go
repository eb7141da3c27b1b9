package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		s := c.Semaphore("s", 4)
		one, two := take(t)(s.Acquire(t.Context(), 1)), take(t)(s.Acquire(t.Context(), 2))
		// A large request that waits holds up the small ones behind it.
		large := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(ctx, 3) })
		stillWaiting(t, "3 of 4, beside 3", large)
		refused(t, holdfast.ErrHeld)(s.TryAcquire(t.Context(), 1))
		small := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(ctx, 1) })
		stillWaiting(t, "1, behind the large request", small)
		release(t, one)
		stillWaiting(t, "3 of 4, beside 2", large)
		release(t, two)
		l := acquired(t, "3 of 4", large)
		release(t, acquired(t, "the last of 4", small))
		refused(t, holdfast.ErrHeld)(s.TryAcquire(t.Context(), 2))
		release(t, l)
		if err := s.Do(t.Context(), 4, func(ctx context.Context) error {
			refused(t, holdfast.ErrHeld)(c.Semaphore("s", 4).TryAcquire(t.Context(), 1))
			return nil
		}); err != nil {
			t.Error(err)
		}
		for _, n := range []int{0, -1, 5} {
			refused(t, holdfast.ErrInvalid)(s.Acquire(t.Context(), n))
		}
		refused(t, holdfast.ErrInvalid)(c.Semaphore("s", 0).Acquire(t.Context(), 1))
	})
}

// The permits of a dead holder are free again when its lease has expired.
func TestDeadHolderOfPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		l := take(t)(client(t, conn, nil).Semaphore("s", 2).Acquire(t.Context(), 2))
		conn.Cut()
		within(t, "the wait", ttl, ttl+100*time.Millisecond, func() {
			take(t)(client(t, store, nil).Semaphore("s", 2).Acquire(t.Context(), 1))
		})
		isLost(t, l.Err(), holdfast.ReasonUnreachable)
	})
}

func TestSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		if err := c.SetLimit(t.Context(), "s", 0); !errors.Is(err, holdfast.ErrGone) {
			t.Errorf("removal of a limit of a name that is not in use: %v", err)
		}
		two, three := c.Semaphore("s", 2), c.Semaphore("s", 3)
		l := take(t)(two.Acquire(t.Context(), 2))
		refused(t, holdfast.ErrKind)(three.TryAcquire(t.Context(), 1))
		refused(t, holdfast.ErrKind)(c.Mutex("s").Lock(t.Context()))
		waiting := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return two.Acquire(ctx, 1) })
		stillWaiting(t, "one more than the limit", waiting)
		if err := c.SetLimit(t.Context(), "s", 3); err != nil {
			t.Fatal(err)
		}
		third := acquired(t, "the waiter, after the limit was raised", waiting)
		refused(t, holdfast.ErrKind)(two.TryAcquire(t.Context(), 1))
		if err := c.SetLimit(t.Context(), "s", 1); err != nil {
			t.Fatal(err)
		}
		release(t, third)
		refused(t, holdfast.ErrHeld)(c.Semaphore("s", 1).TryAcquire(t.Context(), 1))
		if err := l.Err(); err != nil {
			t.Errorf("a holder, after the limit was lowered: %v", err)
		}
		release(t, l)
		take(t)(c.Semaphore("s", 1).TryAcquire(t.Context(), 1))
		if err := c.SetLimit(t.Context(), "s", -1); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("SetLimit of -1: %v", err)
		}
	})
}

// A context that holds permits may take more, as long as they can ever be free.
func TestReentrantSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		s, again := c.Semaphore("s", 3), c.Semaphore("s", 3, holdfast.Reentrant())
		two := take(t)(s.Acquire(t.Context(), 2))
		inside := two.Context(t.Context())
		refused(t, holdfast.ErrDeadlock)(s.Acquire(inside, 2))
		refused(t, holdfast.ErrDeadlock)(again.Acquire(inside, 3))
		third := take(t)(s.Acquire(inside, 1))
		if third.Token() == two.Token() {
			t.Error("the third permit was borrowed without Reentrant")
		}
		borrowed := take(t)(again.Acquire(inside, 2))
		if borrowed.Token() != two.Token() {
			t.Error("permits that the context holds were not borrowed")
		}
		// A borrowed lease does not count twice.
		refused(t, holdfast.ErrDeadlock)(s.Acquire(borrowed.Context(third.Context(inside)), 1))
		release(t, two)
		if err := borrowed.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("borrowed permits outlive their lease: %v", err)
		}
		release(t, third)
	})
}

// Drain takes what is free, and nothing that a waiter in the queue could get.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		s := c.Semaphore("s", 5)
		drain := func(want int) *holdfast.Lease {
			t.Helper()
			l, n, err := s.Drain(t.Context())
			if err != nil || n != want {
				t.Fatalf("Drain: %d, %v; want %d", n, err, want)
			}
			return l
		}
		none := func(want error) {
			t.Helper()
			if l, n, err := s.Drain(t.Context()); l != nil || n != 0 || !errors.Is(err, want) {
				t.Errorf("Drain: %v, %d, %v; want %v", l, n, err, want)
			}
		}
		release(t, drain(5))
		two := take(t)(s.Acquire(t.Context(), 2))
		rest := drain(3)
		none(holdfast.ErrHeld)
		if r, err := c.Inspect(t.Context(), "s"); err != nil || len(r.Holders) != 2 || r.Holders[1].Permits != 3 {
			t.Errorf("the record: %+v, %v", r, err)
		}
		release(t, rest)
		large := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(ctx, 4) })
		stillWaiting(t, "4 of 5, beside 2", large)
		none(holdfast.ErrHeld)
		release(t, two)
		release(t, acquired(t, "4 of 5", large))
		release(t, drain(5))
		l := lock(t, c, "s")
		none(holdfast.ErrKind)
		release(t, l)
	})
}

// Others take permits between the look and the request.
func TestDrainBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		other := client(t, store, nil)
		h := &hooks{Backend: store}
		var taken []*holdfast.Lease
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			if len(taken) < 3 {
				taken = append(taken, take(t)(other.Semaphore("s", 5).Acquire(t.Context(), 1)))
			}
			return next()
		}
		l, n, err := client(t, h, nil).Semaphore("s", 5).Drain(t.Context())
		if err != nil || n != 2 {
			t.Fatalf("Drain beside 3 of 5: %d, %v", n, err)
		}
		for _, l := range append(taken, l) {
			release(t, l)
		}
	})
}

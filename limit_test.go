package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

func setLimit(t testing.TB, c *holdfast.Client, limit int) {
	t.Helper()
	if err := c.SetLimit(t.Context(), "s", limit); err != nil {
		t.Fatalf("SetLimit(%d): %v", limit, err)
	}
}

// A limit that is set before anybody uses the name stays until it is removed.
func TestLimitThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		has := func(limit int, set bool) {
			t.Helper()
			time.Sleep(time.Hour)
			r, err := c.Inspect(t.Context(), "s")
			if err != nil || r.Kind != "semaphore" || r.Limit != limit || r.LimitSet != set {
				t.Errorf("%+v, %v; want limit %d, set: %t", r, err, limit, set)
			}
		}
		setLimit(t, c, 2)
		has(2, true)
		refused(t, holdfast.ErrKind)(c.Semaphore("s", 3).Acquire(t.Context(), 1))
		refused(t, holdfast.ErrKind)(c.Mutex("s").Lock(t.Context()))
		refused(t, holdfast.ErrKind)(c.RWMutex("s").RLock(t.Context()))
		l := take(t)(c.Semaphore("s", 2).Acquire(t.Context(), 2))
		token := l.Token()
		release(t, l)
		has(2, true)
		l = take(t)(c.Semaphore("s", 2).Acquire(t.Context(), 2))
		setLimit(t, c, 0)
		has(2, false)
		refused(t, holdfast.ErrKind)(c.Semaphore("s", 3).Acquire(t.Context(), 1))
		release(t, l)
		if m := lock(t, c, "s"); m.Token() <= l.Token() || l.Token() <= token {
			t.Errorf("tokens %d, %d, %d", token, l.Token(), m.Token())
		}
	})
}

func TestLimitAsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		s := c.Semaphore("s", holdfast.LimitAsSet, holdfast.Reentrant())
		refused(t, holdfast.ErrInvalid)(s.Acquire(t.Context(), 1))
		two := take(t)(c.Semaphore("s", 2).Acquire(t.Context(), 1))
		refused(t, holdfast.ErrInvalid)(s.TryAcquire(t.Context(), 1))
		if _, _, err := s.Drain(t.Context()); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Drain: %v", err)
		}
		setLimit(t, c, 3)
		l, n, err := s.Drain(t.Context())
		if err != nil || n != 2 {
			t.Fatalf("Drain beside 1 of 3: %d, %v", n, err)
		}
		release(t, take(t)(s.Acquire(l.Context(t.Context()), 2))) // borrowed
		inside := lockAsync(t, func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(l.Context(ctx), 3) })
		stillWaiting(t, "3 more, whose limit may be raised", inside)
		setLimit(t, c, 6)
		release(t, acquired(t, "3 more", inside))
		release(t, two)
		release(t, l)
	})
}

// The limit goes from 5 to 2 to 8 while clients use it. None is refused, never more than the limit
// are granted, and each limit is used up.
func TestLimitChangesWhileClientsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		operator := client(t, store, nil)
		setLimit(t, operator, 5)
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var inUse, most int
		use := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			inUse += n
			most = max(most, inUse)
		}
		var all sync.WaitGroup
		for range 12 {
			c := client(t, store, nil)
			all.Go(func() {
				for ctx.Err() == nil {
					err := c.Semaphore("s", holdfast.LimitAsSet).Do(ctx, 1, func(context.Context) error {
						use(1)
						time.Sleep(time.Second)
						use(-1)
						return nil
					})
					if err != nil && ctx.Err() == nil {
						t.Errorf("Do: %v", err)
						return
					}
				}
			})
		}
		for _, limit := range []int{5, 2, 8, 1} {
			setLimit(t, operator, limit)
			time.Sleep(2500 * time.Millisecond) // earlier grants end; no other begins or ends now
			mu.Lock()
			most = inUse
			mu.Unlock()
			time.Sleep(9500 * time.Millisecond)
			mu.Lock()
			if most != limit {
				t.Errorf("at most %d at a time under a limit of %d", most, limit)
			}
			mu.Unlock()
		}
		stop()
		all.Wait()
		setLimit(t, operator, 0)
	})
}

package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// once makes the first exchange of a kind arrive d after its caller has given up.
func once(what string, d time.Duration) func(string) time.Duration {
	var done atomic.Bool
	return func(w string) time.Duration {
		if w == what && done.CompareAndSwap(false, true) {
			return d
		}
		return 0
	}
}

// A call that was given up leaves nothing behind, even if its exchange reaches the store after the
// Cancel. Each kind of call is tested, at each of the times at which a Cancel is repeated.
func TestExchangesThatArriveAfterTheirCancel(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *holdfast.Client) error{
		"Lock":    func(ctx context.Context, c *holdfast.Client) error { _, err := c.Mutex("x").Lock(ctx); return err },
		"TryLock": func(ctx context.Context, c *holdfast.Client) error { _, err := c.Mutex("x").TryLock(ctx); return err },
		"RLock":   func(ctx context.Context, c *holdfast.Client) error { _, err := c.RWMutex("x").RLock(ctx); return err },
		"Poll": func(ctx context.Context, c *holdfast.Client) error {
			_, err := c.Mutex("x", holdfast.Poll(time.Second, 3)).Lock(ctx)
			return err
		},
		"WaitAtMost": func(_ context.Context, c *holdfast.Client) error {
			_, err := c.Mutex("x", holdfast.WaitAtMost(50*time.Millisecond)).Lock(context.Background())
			return err
		},
		"LockAll": func(ctx context.Context, c *holdfast.Client) error {
			_, err := holdfast.LockAll(ctx, c.Mutex("w"), c.Mutex("x"))
			return err
		},
	}
	for name, call := range calls {
		for _, d := range []time.Duration{5 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(name, " ", d), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memlock.New()
					h := &hooks{Backend: store, late: once("acquire", d)}
					c, other := client(t, h, nil), client(t, store, nil)
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					within(t, name, 50*time.Millisecond, 80*time.Millisecond, func() {
						if err := call(ctx, c); err == nil {
							t.Error("it succeeded")
						}
					})
					time.Sleep(4 * time.Second) // longer than the limit of an exchange, shorter than a TTL
					for _, name := range []string{"w", "x"} {
						release(t, take(t)(other.Mutex(name).TryLock(t.Context())))
					}
				})
			})
		}
	}
}

// Release comes while an exchange of its request was not answered and may still arrive.
func TestReleaseBeforeALateExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, &hooks{Backend: store, late: once("acquire", 100*time.Millisecond)}, nil), client(t, store, nil)
		l := lock(t, c, "x") // by its second exchange
		release(t, l)
		time.Sleep(4 * time.Second)
		release(t, take(t)(other.Mutex("x").TryLock(t.Context())))
	})
}

// MaxHold gives the name back while such an exchange may still arrive. The minimum hold stays.
func TestMaxHoldBeforeALateExchange(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := &hooks{Backend: store, late: once("acquire", 100*time.Millisecond)}
			c, other := client(t, h, nil), client(t, store, nil)
			opts := []holdfast.Option{holdfast.MaxHold(20 * time.Millisecond)}
			if keep > 0 {
				opts = append(opts, holdfast.MinHold(keep))
			}
			l := lock(t, c, "x", opts...) // by its second exchange
			<-l.Done()
			time.Sleep(500 * time.Millisecond) // the store would keep a grant of the late exchange for a second
			got, err := other.Mutex("x").TryLock(t.Context())
			if keep > 0 {
				refused(t, holdfast.ErrHeld)(got, err)
			} else {
				release(t, take(t)(got, err))
			}
		})
	}
}

// The same for adoptions.
func TestAdoptionThatArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		giver, taker := client(t, store, nil), client(t, &hooks{Backend: store, late: once("adopt", 100*time.Millisecond)},
			nil)
		ticket, adopted, err := lock(t, giver, "x").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		refused(t, context.DeadlineExceeded)(taker.Adopt(ctx, ticket))
		<-adopted
		time.Sleep(time.Second)
		release(t, take(t)(giver.Mutex("x").TryLock(t.Context())))
	})
}

// A wait for a latch that was given up is cancelled again, as long as its exchange may be under
// way.
func TestLatchWaitThatArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancels atomic.Int32
		h := &hooks{Backend: memlock.New(), late: once("await", 100*time.Millisecond)}
		h.cancel = func(_ string, next func() error) error { cancels.Add(1); return next() }
		c := client(t, h, nil)
		if _, err := c.Latch("x").Set(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Latch("x").Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		time.Sleep(5 * time.Second)
		if n := cancels.Load(); n != 4 {
			t.Errorf("%d cancels of an unanswered exchange; want 4", n)
		}
	})
}

// A wait that was answered is cancelled once.
func TestOneCancelOfAnAnsweredWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var cancels atomic.Int32
		h := &hooks{Backend: store, cancel: func(_ string, next func() error) error { cancels.Add(1); return next() }}
		c := client(t, h, nil)
		defer release(t, lock(t, client(t, store, nil), "x"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		refused(t, context.DeadlineExceeded)(c.Mutex("x").Lock(ctx))
		time.Sleep(5 * time.Second)
		if n := cancels.Load(); n != 1 {
			t.Errorf("%d cancels; want 1", n)
		}
	})
}

// Close waits for the repeats that are due soon.
func TestCloseDuringALateExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store, late: once("acquire", 100*time.Millisecond), forgets: true}
		c, other := client(t, h, nil), client(t, store, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		refused(t, context.DeadlineExceeded)(c.Mutex("x").Lock(ctx))
		within(t, "Close", 0, time.Second, func() {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		release(t, take(t)(other.Mutex("x").TryLock(t.Context())))
	})
}

// Close releases a grant whose answer arrives during Close, before the session ends.
func TestCloseDuringLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store, forgets: true}
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			reply, err := next()
			time.Sleep(100 * time.Millisecond)
			return reply, err
		}
		c, other := client(t, h, nil), client(t, store, nil)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if _, err := c.Mutex(fmt.Sprint(i)).Lock(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
					t.Errorf("Lock beside Close: %v", err)
				}
			})
		}
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range 10 {
			release(t, take(t)(other.Mutex(fmt.Sprint(i)).TryLock(t.Context())))
		}
		all.Wait()
	})
}

// Ten thousand Locks that are given up while the store is silent leave few goroutines behind.
func TestGivenUpLocksDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		others := runtime.NumGoroutine() // some of them of tests that wait for their turn
		goroutines := func() int { return runtime.NumGoroutine() - others }
		h := &hooks{Backend: memlock.New()}
		var dead atomic.Bool
		silent := func(ctx context.Context) error { <-ctx.Done(); return unanswered(ctx) }
		h.acquire = func(ctx context.Context, _ *driver.Request, _ func() (driver.Reply, error)) (driver.Reply, error) {
			return driver.Reply{}, silent(ctx)
		}
		asked := 0
		var mu sync.Mutex
		h.cancel = func(_ string, next func() error) error {
			mu.Lock()
			asked++
			mu.Unlock()
			if dead.Load() {
				time.Sleep(3 * time.Second)
				return driver.ErrUncertain
			}
			return next()
		}
		dead.Store(true)
		c := client(t, h, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { refused(t, context.DeadlineExceeded)(c.Mutex(fmt.Sprint(i)).Lock(ctx)) })
		}
		before := heap()
		within(t, "the Locks", 0, 150*time.Millisecond, all.Wait)
		synctest.Wait() // those of the Locks may be about to end
		t.Logf("%d goroutines, %d kB more than while they waited", goroutines(), (int64(heap())-int64(before))/1024)
		if k := goroutines(); k > 100 {
			t.Errorf("%d goroutines for %d locks that were given up", k, n)
		}
		dead.Store(false)
		time.Sleep(2 * ttl)
		synctest.Wait() // what the client does at the same time
		if k := goroutines(); k > 20 {
			t.Errorf("%d goroutines are left", k)
		}
		if mu.Lock(); asked < n {
			t.Errorf("%d requests were cancelled; want %d", asked, n)
		}
		mu.Unlock()
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

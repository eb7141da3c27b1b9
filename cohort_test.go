package holdfast_test

import (
	"context"
	"errors"
	"fmt"
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

// counted is a store that counts the exchanges about locks.
func counted(store driver.Backend) (*hooks, *atomic.Int64) {
	n := new(atomic.Int64)
	return &hooks{Backend: store,
		acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			n.Add(1)
			return next()
		},
		release: func(_ context.Context, _ driver.Hold, next func() error) error { n.Add(1); return next() },
		cancel:  func(_ string, next func() error) error { n.Add(1); return next() },
	}, n
}

// queue makes n calls of c for x wait, one after the other.
func queue(t *testing.T, c *holdfast.Client, n int, opts ...holdfast.Option) []<-chan *holdfast.Lease {
	t.Helper()
	all := make([]<-chan *holdfast.Lease, n)
	for i := range all {
		all[i] = lockAsync(t, c.Mutex("x", opts...).Lock)
		stillWaiting(t, fmt.Sprint("waiter ", i), all[i])
	}
	return all
}

// turns releases l and then each lease of the queue, and checks that they come in order, each with a
// larger token than the one before. It returns the last token.
func turns(t *testing.T, l *holdfast.Lease, all ...<-chan *holdfast.Lease) uint64 {
	t.Helper()
	for i, ch := range all {
		last := l.Token()
		for _, later := range all[i:] {
			stillWaiting(t, "a waiter before its turn", later)
		}
		release(t, l)
		l = acquired(t, fmt.Sprint("waiter ", i), ch)
		if l.Token() <= last || l.Err() != nil {
			t.Errorf("waiter %d: token %d after %d, %v", i, l.Token(), last, l.Err())
		}
	}
	release(t, l)
	return l.Token()
}

// The calls of one client pass the lock on in order, and the store hears of few of them.
func TestPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c := client(t, store, nil)
		l := lock(t, c, "x")
		all := queue(t, c, 100)
		if n.Load() != 2 {
			t.Errorf("%d exchanges; want the holder's and the first waiter's", n.Load())
		}
		last := turns(t, l, all...)
		// The first waiter has a block of one, the second takes more for those behind it.
		if n.Load() > 10 {
			t.Errorf("%d exchanges for 101 holders", n.Load())
		}
		if next := lock(t, client(t, store, nil), "x"); next.Token() <= last {
			t.Errorf("another client has token %d after %d", next.Token(), last)
		}
	})
}

// Another client waits for at most so many passes.
func TestPassesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, &holdfast.Config{Passes: 3}), client(t, store, nil)
		first := lock(t, c, "x")
		mine := queue(t, c, 12)
		his := queue(t, other, 1)[0]
		// The first waiter has asked before the other client. It and three passes are before that one.
		last := turns(t, first, mine[:4]...)
		l := acquired(t, "the other client", his)
		for _, ch := range mine[4:] {
			stillWaiting(t, "a waiter", ch)
		}
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		turns(t, l, mine[4:]...)
	})
}

// Another client waits for at most so long, and for the call that has the lock then.
func TestPassesEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, &holdfast.Config{PassFor: 100 * time.Millisecond}), client(t, store, nil)
		first := lock(t, other, "x")
		mine := queue(t, c, 1)
		mine = append(mine, queue(t, c, 20)...)
		release(t, first)
		release(t, acquired(t, "the first", mine[0])) // it had asked for itself alone
		his := queue(t, other, 1)[0]
		var order []string
		for range 21 {
			synctest.Wait()
			l, who := (*holdfast.Lease)(nil), "mine"
			for _, ch := range append(mine[1:], his) {
				select {
				case l = <-ch:
				default:
					continue
				}
				if ch == his {
					who = "his"
				}
			}
			if l == nil {
				t.Fatalf("nobody has the lock after %q", order)
			}
			order = append(order, who)
			time.Sleep(30 * time.Millisecond)
			release(t, l)
		}
		// The one that asked at the store before it is first, and then as many as begin in 100 ms.
		if i := slices.Index(order, "his"); i < 3 || i > 5 {
			t.Errorf("the other client had to wait for %d passes of 30 ms", i)
		}
	})
}

// A holder that keeps the lock for long does not keep its client's waiters out of the store's queue.
func TestLineHasAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		first := lock(t, other, "x")
		mine := queue(t, c, 5)
		release(t, first)
		release(t, acquired(t, "the first", mine[0]))
		long := acquired(t, "the second", mine[1]) // it has a block of tokens
		time.Sleep(time.Second)
		if r := must(other.Inspect(t.Context(), "x"))(t); r.Waiting != 1 {
			t.Errorf("%d wait at the store; want the first of the line", r.Waiting)
		}
		his := queue(t, other, 1)[0]
		release(t, long)
		next := acquired(t, "the third", mine[2])
		stillWaiting(t, "the other client", his)
		release(t, next)
		release(t, acquired(t, "the fourth", mine[3])) // passed on
		release(t, acquired(t, "the fifth", mine[4]))
		release(t, acquired(t, "the other client", his))
	})
}

// A call that gives up leaves its place in the store's queue to the next call of its client.
func TestPlaceIsBequeathed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c, other := client(t, store, nil), client(t, store, nil)
		first := lock(t, other, "x")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { _, err := c.Mutex("x").Lock(ctx); gaveUp <- err }()
		synctest.Wait()
		mine := queue(t, c, 2)
		his := queue(t, other, 1)[0]
		before := n.Load()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("the call that gave up: %v", err)
		}
		synctest.Wait()
		if n.Load() != before {
			t.Errorf("%d exchanges to leave a place to the next call", n.Load()-before)
		}
		time.Sleep(3 * ttl) // the place is renewed
		release(t, first)
		l := acquired(t, "the next call", mine[0])
		stillWaiting(t, "the other client", his)
		release(t, l)
		release(t, acquired(t, "the other client", his))
		release(t, acquired(t, "the last", mine[1]))
	})
}

// Calls that want another record at the store, or another kind of lease, are on their own.
func TestOnTheirOwn(t *testing.T) {
	for name, opts := range map[string][]holdfast.Option{
		"fair":         {holdfast.Fair()},
		"minimum hold": {holdfast.MinHold(time.Microsecond)},
		"maximum hold": {holdfast.MaxHold(time.Hour)},
		"a note":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				c := client(t, store, nil)
				l := lock(t, c, "x", opts...)
				const n = 4
				var all []<-chan *holdfast.Lease
				for i := range n {
					with := opts
					if with == nil {
						with = []holdfast.Option{holdfast.Note(fmt.Sprint("note ", i))}
					}
					all = append(all, queue(t, c, 1, with...)...)
				}
				if r := must(c.Inspect(t.Context(), "x"))(t); r.Waiting != n {
					t.Errorf("%d wait at the store; want %d", r.Waiting, n)
				}
				for _, ch := range all {
					time.Sleep(time.Millisecond) // the minimum hold
					release(t, l)
					l = acquired(t, "a waiter", ch)
				}
				release(t, l)
			})
		})
	}
	t.Run("a client without passes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := client(t, memlock.New(), &holdfast.Config{Passes: -1})
			l := lock(t, c, "x")
			all := queue(t, c, 4)
			if r := must(c.Inspect(t.Context(), "x"))(t); r.Waiting != 4 {
				t.Errorf("%d wait at the store; want 4", r.Waiting)
			}
			turns(t, l, all...)
		})
	})
}

// Each call in line has its own context and bounds, and learns who has the lock.
func TestLineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		first := lock(t, c, "x")
		asker := queue(t, c, 1)[0]
		mutex := c.Mutex("x", holdfast.WaitAtMost(time.Second))
		within(t, "WaitAtMost", time.Second, time.Second, func() {
			var e *holdfast.Error
			if _, err := mutex.Lock(t.Context()); !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil ||
				e.Holder.Token != first.Token() {
				t.Errorf("WaitAtMost: %v", err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Mutex("x").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: %v", err)
		}
		if w := c.Wanted(); len(w) != 1 {
			t.Errorf("%d calls wait; want 1", len(w))
		}
		ended := make(chan error, 1)
		go func() { _, err := c.Mutex("x").Lock(t.Context()); ended <- err }()
		synctest.Wait()
		if w := c.Wanted(); len(w) != 2 || w[1].Ahead != 1 {
			t.Errorf("Wanted = %+v", w)
		}
		release(t, first)
		release(t, acquired(t, "the asker", asker))
		if err := <-ended; err != nil {
			t.Errorf("the last: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		lock(t, c, "x")
		const n = 5
		ended := make(chan error, n)
		for range n {
			go func() { _, err := c.Mutex("x").Lock(context.Background()); ended <- err }()
			synctest.Wait()
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for range n {
			if err := <-ended; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// A store that fails the call that asks fails those in line, in the time that one takes.
func TestLineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var fails atomic.Bool
		h := &hooks{Backend: store,
			acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
				if fails.Load() {
					return driver.Reply{}, driver.ErrUnavailable
				}
				return next()
			}}
		c, other := client(t, h, nil), client(t, store, nil)
		his := lock(t, other, "x")
		ended := make(chan error, 8)
		for range cap(ended) {
			go func() { _, err := c.Mutex("x").Lock(t.Context()); ended <- err }()
			synctest.Wait()
		}
		fails.Store(true)
		if err := other.Break(t.Context(), "x", his.Token(), "a test"); err != nil {
			t.Fatal(err)
		}
		release(t, lock(t, other, "y"))
		first := 0
		within(t, "all", 0, 5*ttl, func() {
			for range cap(ended) {
				if err := <-ended; err == nil {
					first++
				} else if !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			}
		})
		if first > 1 {
			t.Errorf("%d calls got the lock from a store that does not answer", first)
		}
	})
}

// Bounds that make no sense are refused.
func TestPassesRefused(t *testing.T) {
	for _, cfg := range []holdfast.Config{{Passes: 1000}, {PassFor: -1}, {Passes: -1, PassFor: -time.Second}} {
		_, err := holdfast.New(t.Context(), memlock.New(), &cfg)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "allowed are") {
			t.Errorf("Passes %d, PassFor %v: %v", cfg.Passes, cfg.PassFor, err)
		}
	}
	c, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{Passes: 999, PassFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// BenchmarkOneName measures what a pass costs: many goroutines, one name, a store in memory.
func BenchmarkOneName(b *testing.B) {
	for _, cfg := range []struct {
		name   string
		passes int
	}{{"passes", 0}, {"none", -1}} {
		b.Run(cfg.name, func(b *testing.B) {
			m := client(b, memlock.New(), &holdfast.Config{Passes: cfg.passes}).Mutex("x")
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l, err := m.Lock(context.Background())
					if err != nil {
						b.Error(err)
						return
					}
					if err := l.Release(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

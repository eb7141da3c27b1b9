package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

const idleFor = 3 * ttl

func sticky() holdfast.Option { return holdfast.Sticky(idleFor) }

// recalls is a store that passes call-backs on as the test says. Without a function it does at once.
type recalls struct {
	driver.Backend
	f      atomic.Pointer[func(name, id string, next func(name, id string))]
	wanted atomic.Pointer[func(name, id string)] // of the client that was opened last
}

func (r *recalls) set(f func(name, id string, next func(name, id string))) { r.f.Store(&f) }

// lose makes the store's call-backs get lost.
func (r *recalls) lose() { r.set(func(string, string, func(string, string)) {}) }

func (r *recalls) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	next := cfg.Wanted
	r.wanted.Store(&next)
	cfg.Wanted = func(name, id string) {
		if f := r.f.Load(); f != nil {
			(*f)(name, id, next)
			return
		}
		next(name, id)
	}
	return r.Backend.Open(ctx, cfg)
}

// takeX takes and releases x, and returns the token.
func takeX(t *testing.T, c *holdfast.Client, opts ...holdfast.Option) uint64 {
	t.Helper()
	l := lock(t, c, "x", opts...)
	if err := l.Err(); err != nil {
		t.Errorf("a lease that has just begun: %v", err)
	}
	release(t, l)
	return l.Token()
}

// holders returns how many grants of x the store has.
func holders(t *testing.T, c *holdfast.Client) int {
	t.Helper()
	return len(must(c.Inspect(t.Context(), "x"))(t).Holders)
}

// An idle grant is taken again without an exchange, each time with a larger token that the store knows
// of, until d after the last release.
func TestSticky(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c, other := client(t, store, nil), client(t, store, nil)
		last := takeX(t, c, sticky())
		for range 50 {
			token := takeX(t, c, sticky())
			r := must(other.Inspect(t.Context(), "x"))(t)
			if token <= last || token > r.Token {
				t.Fatalf("token %d after %d; the store has given out up to %d", token, last, r.Token)
			}
			if len(r.Holders) != 1 || r.Holders[0].Sticky != idleFor {
				t.Fatalf("holders %+v; want one that is sticky", r.Holders)
			}
			last = token
			time.Sleep(ttl / 50)
		}
		time.Sleep(ttl) // renewed meanwhile
		if l, err := c.Mutex("x", sticky()).TryLock(t.Context()); err != nil {
			t.Errorf("TryLock of an idle grant: %v", err)
		} else {
			release(t, l)
		}
		if n.Load() != 1 {
			t.Errorf("%d exchanges; want the first Acquire", n.Load())
		}
		if h, x := c.Held(), c.Health(); len(h) != 0 || x.Held != 0 {
			t.Errorf("an idle grant is reported as held: %v, %+v", h, x)
		}
		time.Sleep(idleFor - time.Millisecond)
		synctest.Wait()
		if holders(t, other) != 1 {
			t.Error("it went back too early")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if holders(t, other) != 0 {
			t.Error("it has not gone back")
		}
		if token := takeX(t, other); token <= last {
			t.Errorf("another client has token %d after %d", token, last)
		}
	})
}

// A newcomer calls an idle grant back at once, and the holder asks behind it.
func TestCalledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		last := takeX(t, c, sticky())
		var his *holdfast.Lease
		within(t, "a newcomer", 0, 0, func() { his = lock(t, other, "x") })
		if his.Token() <= last {
			t.Errorf("token %d after %d", his.Token(), last)
		}
		mine := lockAsync(t, c.Mutex("x", sticky()).Lock)
		stillWaiting(t, "the sticky client", mine)
		release(t, his)
		l := acquired(t, "the sticky client", mine)
		if l.Token() <= his.Token() {
			t.Errorf("token %d after %d", l.Token(), his.Token())
		}
		release(t, l)
		// That grant was handed over, so others could have been behind it: it has gone back.
		if holders(t, other) != 0 {
			t.Error("a grant that was handed over stayed")
		}
		takeX(t, c, sticky())
		if holders(t, other) != 1 {
			t.Error("a grant that was free did not stay")
		}
	})
}

// A call-back while the lease is in use makes its release give the grant back.
func TestCalledBackInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		takeX(t, c, sticky())
		l := lock(t, c, "x", sticky())
		time.Sleep(time.Second)
		his := lockAsync(t, other.Mutex("x").Lock)
		stillWaiting(t, "the other client", his)
		mine := lockAsync(t, c.Mutex("x", sticky()).Lock)
		stillWaiting(t, "the next call", mine)
		if r := must(other.Inspect(t.Context(), "x"))(t); r.Waiting != 2 {
			t.Errorf("%d wait at the store; want the other client and the next call", r.Waiting)
		}
		release(t, l)
		h := acquired(t, "the other client", his)
		stillWaiting(t, "the next call", mine)
		release(t, h)
		release(t, acquired(t, "the next call", mine))
	})
}

// While somebody waits, a sticky client makes as many passes as any client, and for as long.
func TestCalledBackLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, &holdfast.Config{Passes: 3}), client(t, store, nil)
		takeX(t, c, sticky())
		time.Sleep(time.Second) // longer than passes may go on
		first := lock(t, c, "x", sticky())
		mine := queue(t, c, 6, sticky())
		release(t, first)
		l := acquired(t, "the first", mine[0]) // nobody else waits: no bound
		his := lockAsync(t, other.Mutex("x").Lock)
		stillWaiting(t, "the other client", his)
		release(t, l)
		h := acquired(t, "the other client", his)
		for _, ch := range mine[1:] {
			stillWaiting(t, "a call of the line", ch)
		}
		turns(t, h, mine[1:]...)
	})
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, &holdfast.Config{Passes: 3}), client(t, store, nil)
		first := lock(t, c, "x", sticky()) // passes may go on for a while
		mine := queue(t, c, 6, sticky())
		his := lockAsync(t, other.Mutex("x").Lock)
		stillWaiting(t, "the other client", his)
		last := turns(t, first, mine[:3]...)
		h := acquired(t, "the other client", his)
		if h.Token() <= last {
			t.Errorf("token %d after %d", h.Token(), last)
		}
		turns(t, h, mine[3:]...)
	})
}

// A call-back that is lost is repeated when the place is renewed. If none arrives, d bounds the wait.
func TestCallBackIsLost(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &recalls{Backend: memlock.New()}
			c, other := client(t, store, nil), client(t, store, nil)
			takeX(t, c, sticky())
			store.lose()
			his := lockAsync(t, other.Mutex("x").Lock)
			stillWaiting(t, "the other client", his)
			store.f.Store(nil)
			within(t, "the next renewal", 0, ttl/3+time.Millisecond, func() { release(t, <-his) })
		})
	})
	t.Run("each", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &recalls{Backend: memlock.New()}
			c, other := client(t, store, nil), client(t, store, nil)
			store.lose()
			takeX(t, c, sticky())
			within(t, "the other client", idleFor, idleFor+time.Millisecond, func() { takeX(t, other) })
		})
	})
	t.Run("each, and the holder takes it again and again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &recalls{Backend: memlock.New()}
			c, other := client(t, store, nil), client(t, store, nil)
			store.lose()
			takeX(t, c, sticky())
			his := lockAsync(t, other.Mutex("x").Lock)
			stillWaiting(t, "the other client", his)
			began, last := time.Now(), uint64(0)
			for {
				l := lock(t, c, "x", sticky())
				if d := time.Since(began); d > idleFor+time.Second {
					t.Fatalf("the other client has waited for %v", d)
				}
				last = l.Token()
				release(t, l)
				synctest.Wait()
				select {
				case l := <-his:
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					release(t, l)
					return
				default:
				}
				time.Sleep(time.Second)
			}
		})
	})
	t.Run("pushes may have been missed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &recalls{Backend: memlock.New()}
			c, other := client(t, store, nil), client(t, store, nil)
			var missed func()
			store.set(func(name, id string, next func(name, id string)) { missed = func() { next(name, id) } })
			takeX(t, c, sticky())
			his := lockAsync(t, other.Mutex("x").Lock)
			stillWaiting(t, "the other client", his)
			missed()
			release(t, acquired(t, "the other client", his))
		})
	})
}

// A call-back may overtake the answer that brings the grant.
func TestCallBackIsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store}
		c, other := client(t, h, nil), client(t, store, nil)
		var his <-chan *holdfast.Lease
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			r, err := next()
			if his == nil {
				his = lockAsync(t, other.Mutex("x").Lock)
				time.Sleep(time.Millisecond)
			}
			return r, err
		}
		l := lock(t, c, "x", sticky())
		stillWaiting(t, "the other client", his)
		release(t, l)
		release(t, acquired(t, "the other client", his))
	})
}

// Call-backs that are forged or stale end no lease, and a stale one does not end an idle grant either.
func TestFalseCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		r := &recalls{Backend: store}
		c, other := client(t, r, nil), client(t, store, nil)
		var callBack func(name, id string)
		stale := ""
		r.set(func(name, id string, next func(name, id string)) {
			callBack, stale = next, id
			next(name, id)
		})
		takeX(t, c, sticky())
		takeX(t, other)
		takeX(t, c, sticky())
		before := n.Load()
		for _, id := range []string{stale, "x", ""} {
			callBack("x", id)
			callBack("y", id)
		}
		synctest.Wait()
		if holders(t, other) != 1 || n.Load() != before {
			t.Error("a stale call-back has ended an idle grant")
		}
		l := lock(t, c, "x", sticky())
		callBack("x", must(other.Inspect(t.Context(), "x"))(t).Holders[0].ID)
		synctest.Wait()
		if err := l.Err(); err != nil || n.Load() != before {
			t.Errorf("a call-back has ended a lease: %v", err)
		}
		release(t, l)
		if holders(t, other) != 0 {
			t.Error("it has not gone back")
		}
	})
}

// The block of tokens is used up: the grant goes back, and is taken again with a larger block.
func TestStickyBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c, other := client(t, store, nil), client(t, store, nil)
		last := uint64(0)
		for range 5000 {
			token := takeX(t, c, sticky())
			if token <= last {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
		}
		if n.Load() < 8 || n.Load() > 30 {
			t.Errorf("%d exchanges for 5,000 leases", n.Load())
		}
		if token := takeX(t, other); token <= last {
			t.Errorf("token %d after %d", token, last)
		}
	})
	// With calls in line, the next one does not queue behind the grant of its own client.
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c := client(t, store, nil)
		l := lock(t, c, "x", sticky())
		turns(t, l, queue(t, c, 300, sticky())...)
		if n.Load() > 12 {
			t.Errorf("%d exchanges for 301 leases", n.Load())
		}
		if holders(t, c) != 1 {
			t.Error("the last grant did not stay")
		}
	})
}

// A call that comes while the last token of the block is in use does not queue behind its own client.
func TestStickyLastToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c := client(t, store, nil)
		l := lock(t, c, "x", sticky())
		for l.Token() != l.GrantToken() {
			release(t, l)
			l = lock(t, c, "x", sticky())
		}
		next := lockAsync(t, c.Mutex("x", sticky()).Lock)
		stillWaiting(t, "the next call", next)
		if n.Load() != 1 {
			t.Errorf("%d exchanges; want one, for the first block", n.Load())
		}
		release(t, l)
		again := acquired(t, "the next call", next)
		if again.Token() <= l.Token() {
			t.Errorf("token %d after %d", again.Token(), l.Token())
		}
		release(t, again)
		if holders(t, c) != 1 || n.Load() != 3 {
			t.Errorf("%d grants, %d exchanges; want one that stays, after three", holders(t, c), n.Load())
		}
	})
}

package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Other calls of the client that want the name are no reason to wait for d.
func TestStickyBesideOthers(t *testing.T) {
	each := map[string]func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error){
		"a plain Lock": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			return c.Mutex("x").Lock(t.Context())
		},
		"a plain TryLock": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			return c.Mutex("x").TryLock(t.Context())
		},
		"Poll": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			return c.Mutex("x", holdfast.Poll(time.Hour, 2)).Lock(t.Context())
		},
		"Fair": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			return c.Mutex("x", holdfast.Fair()).Lock(t.Context())
		},
		"another d": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			return c.Mutex("x", holdfast.Sticky(time.Second)).TryLock(t.Context())
		},
		"a reader": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			return c.RWMutex("x").RLock(t.Context())
		},
		"LockAll": func(t *testing.T, c *holdfast.Client) (*holdfast.Lease, error) {
			m, err := holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("x"))
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = m.Leases()[0].Release() })
			return m.Leases()[1], nil
		},
	}
	for name, f := range each {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := client(t, memlock.New(), nil)
				last := takeX(t, c, sticky())
				within(t, name, 0, 0, func() {
					l := must(f(t, c))(t)
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					release(t, l)
				})
			})
		})
	}
}

// A TryLock of another client is refused, and its error tells that the grant may be idle.
func TestTryLockOfAnIdleGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		takeX(t, c, sticky())
		_, err := other.Mutex("x").TryLock(t.Context())
		var e *holdfast.Error
		if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil || e.Holder.Sticky != idleFor {
			t.Errorf("TryLock: %v; want ErrHeld with a sticky holder", err)
		}
		within(t, "WaitAtMost", 0, 0, func() { takeX(t, other, holdfast.WaitAtMost(time.Second)) })
		l := lock(t, c, "x", sticky())
		if _, err := c.Mutex("x", sticky()).TryLock(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock beside a lease of its client: %v", err)
		}
		release(t, l)
	})
}

// LockAll with sticky parts, by two clients in turn.
func TestStickyLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counted(memlock.New())
		c, other := client(t, store, nil), client(t, store, nil)
		parts := func(c *holdfast.Client) []holdfast.Part {
			return []holdfast.Part{c.Mutex("x", sticky()), c.Mutex("y", sticky()), c.Mutex("z", sticky())}
		}
		for range 10 {
			m := must(holdfast.LockAll(t.Context(), parts(c)...))(t)
			if err := m.Release(); err != nil {
				t.Error(err)
			}
		}
		if n.Load() != 3 {
			t.Errorf("%d exchanges; want the first three", n.Load())
		}
		within(t, "the other client", 0, 0, func() {
			m := must(holdfast.LockAll(t.Context(), parts(other)...))(t)
			if err := m.Release(); err != nil {
				t.Error(err)
			}
		})
	})
}

// What rules Sticky out is refused, and the error says what.
func TestStickyRefused(t *testing.T) {
	store := memlock.New()
	c := client(t, store, nil)
	history, none := client(t, store, &holdfast.Config{History: 10}), client(t, store, &holdfast.Config{Passes: -1})
	deaf := client(t, &hooks{Backend: deafStore{store}}, nil)
	with := func(opts ...holdfast.Option) *holdfast.Mutex { return c.Mutex("x", append(opts, sticky())...) }
	ctx := t.Context()
	for want, f := range map[string]func() (*holdfast.Lease, error){
		"must be positive": func() (*holdfast.Lease, error) { return c.Mutex("x", holdfast.Sticky(0)).Lock(ctx) },
		"beside Fair":      func() (*holdfast.Lease, error) { return with(holdfast.Fair()).Lock(ctx) },
		"beside MinHold":   func() (*holdfast.Lease, error) { return with(holdfast.MinHold(time.Second)).Lock(ctx) },
		"beside MaxHold":   func() (*holdfast.Lease, error) { return with(holdfast.MaxHold(time.Second)).Lock(ctx) },
		"beside Poll":      func() (*holdfast.Lease, error) { return with(holdfast.Poll(time.Second, 1)).Lock(ctx) },
		"History":          func() (*holdfast.Lease, error) { return history.Mutex("x", sticky()).Lock(ctx) },
		"Passes below 0":   func() (*holdfast.Lease, error) { return none.Mutex("x", sticky()).Lock(ctx) },
		"(memory) calls":   func() (*holdfast.Lease, error) { return deaf.Mutex("x", sticky()).Lock(ctx) },
		"read/write lock":  func() (*holdfast.Lease, error) { return c.RWMutex("x", sticky()).Lock(ctx) },
		"or a read lock":   func() (*holdfast.Lease, error) { return c.RWMutex("x", sticky()).RLock(ctx) },
		"a semaphore":      func() (*holdfast.Lease, error) { return c.Semaphore("x", 2, sticky()).Acquire(ctx, 1) },
		"an election":      func() (*holdfast.Lease, error) { return c.Election("x", sticky()).Campaign(ctx) },
		"(OnlyOne has it, too)": func() (*holdfast.Lease, error) {
			_, err := c.OnlyOne(ctx, "x", time.Hour, func(context.Context) error { return nil }, sticky())
			return nil, err
		},
		"taken over": func() (*holdfast.Lease, error) {
			text := must(lock(t, c, "ticket").Ticket())(t)
			return c.Resume(ctx, text, sticky())
		},
	} {
		if _, err := f(); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if holders(t, c) != 0 {
		t.Error("a refused call has taken the lock")
	}
}

type deafStore struct{ driver.Backend }

func (deafStore) Kinds() driver.Kinds {
	k := driver.AllKinds()
	k.CallBack = false
	return k
}

// Two sticky clients that want the name in turn hand it over each time.
func TestStickyPingPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		last := uint64(0)
		within(t, "all", 0, 0, func() {
			for range 100 {
				for _, c := range []*holdfast.Client{a, b} {
					token := takeX(t, c, sticky())
					if token <= last {
						t.Fatalf("token %d after %d", token, last)
					}
					last = token
				}
			}
		})
	})
}

// A part of LockAll that is also named with Poll is not in the queue. So it is not sticky: a Lock behind
// it would fail with it.
func TestStickyJoinedWithPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		held := lock(t, other, "x")
		failed := make(chan error)
		go func() {
			_, err := holdfast.LockAll(t.Context(), c.Mutex("x", sticky()), c.Mutex("x", holdfast.Poll(time.Second, 3)))
			failed <- err
		}()
		synctest.Wait()
		waiting := lockAsync(t, c.Mutex("x", sticky()).Lock)
		if err := <-failed; !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("LockAll: %v; want ErrHeld after three tries", err)
		}
		stillWaiting(t, "a Lock", waiting)
		release(t, held)
		release(t, acquired(t, "a Lock", waiting))
	})
}

// A TryLock beside the give-back of an idle grant that nobody wanted for d is not refused.
func TestTryLockBesideAGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooks{Backend: memlock.New()}
		store.release = func(_ context.Context, _ driver.Hold, next func() error) error {
			time.Sleep(time.Millisecond)
			return next()
		}
		c := client(t, store, nil)
		last := takeX(t, c, sticky())
		time.Sleep(idleFor)
		synctest.Wait()
		l, err := c.Mutex("x", sticky()).TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock while nobody holds or wants the lock: %v", err)
		}
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		release(t, l)
	})
}

// Calls that come beside the give-back of an idle grant wait for it in line: the first of them has a grant
// that was free, and keeps it. Another client that comes as well is served.
func TestLockBesideAGiveBack(t *testing.T) {
	const way = time.Millisecond // of a release
	for name, newcomer := range map[string]bool{"alone": false, "with a newcomer": true} {
		all := way // the give-back; a newcomer's release, and that of a grant which was called back
		if newcomer {
			all = 3 * way
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counting, n := counted(memlock.New())
				send := counting.release
				counting.release = func(ctx context.Context, h driver.Hold, next func() error) error {
					time.Sleep(way)
					return send(ctx, h, next)
				}
				c, other := client(t, counting, nil), client(t, counting, nil)
				takeX(t, c, sticky())
				time.Sleep(idleFor)
				synctest.Wait()
				n.Store(0)
				within(t, "all", all, all, func() {
					mine := lockAsync(t, c.Mutex("x", sticky()).Lock)
					stillWaiting(t, "a call beside the give-back", mine)
					if newcomer {
						his := lockAsync(t, other.Mutex("x", sticky()).Lock)
						stillWaiting(t, "a newcomer", his)
						time.Sleep(way)
						release(t, acquired(t, "the newcomer", his))
					} else {
						time.Sleep(way)
					}
					release(t, acquired(t, "the call", mine))
				})
				if newcomer {
					return
				}
				takeX(t, c, sticky())
				if n.Load() != 2 {
					t.Errorf("%d exchanges; want a release and an Acquire", n.Load())
				}
			})
		})
	}
}

// A Poll of the client gives an idle grant back before each of its tries, not only before the first.
func TestPollBesideASticky(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := lock(t, c, "x", sticky())
		go func() {
			time.Sleep(100 * time.Millisecond)
			release(t, l)
		}()
		p, err := c.Mutex("x", holdfast.Poll(time.Second, 3)).Lock(t.Context())
		if err != nil {
			t.Fatalf("Poll of a lock that has been idle for seconds: %v", err)
		}
		release(t, p)
	})
}

// Idle grants also go back because a push may have been missed. A TryLock beside that is not refused.
func TestTryLockBesideACallBackOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooks{Backend: memlock.New()}
		store.release = func(_ context.Context, _ driver.Hold, next func() error) error {
			time.Sleep(time.Millisecond)
			return next()
		}
		r := &recalls{Backend: store}
		c := client(t, r, nil)
		takeX(t, c, sticky())
		id := must(c.Inspect(t.Context(), "x"))(t).Holders[0].ID
		(*r.wanted.Load())("x", id)
		l, err := c.Mutex("x", sticky()).TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock of a lock that nobody holds or wants: %v", err)
		}
		release(t, l)
	})
}

// A store that refuses writes refuses a call beside the give-back of an idle grant at once.
func TestRefusedBesideAGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooks{Backend: memlock.New()}
		r := &recalls{Backend: store}
		c := client(t, r, nil)
		takeX(t, c, sticky())
		store.release = func(context.Context, driver.Hold, func() error) error { return driver.ErrRefused }
		store.acquire = func(context.Context, *driver.Request, func() (driver.Reply, error)) (driver.Reply, error) {
			return driver.Reply{}, driver.ErrRefused
		}
		id := must(c.Inspect(t.Context(), "x"))(t).Holders[0].ID
		for name, f := range map[string]func(context.Context) (*holdfast.Lease, error){
			"Lock": c.Mutex("x", sticky()).Lock, "TryLock": c.Mutex("x", sticky()).TryLock,
		} {
			(*r.wanted.Load())("x", id)
			within(t, name, 0, 0, func() {
				if _, err := f(t.Context()); !errors.Is(err, driver.ErrRefused) {
					t.Errorf("%s: %v; want ErrRefused", name, err)
				}
			})
		}
	})
}

// An idle grant is a lock in use: another client cannot use the name as something else meanwhile, and calls
// nothing back by that. The same client can use it as a semaphore.
func TestOtherKindsBesideAnIdleGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, store, nil), client(t, store, nil)
		takeX(t, c, sticky())
		if _, err := other.Semaphore("x", 2).Acquire(t.Context(), 1); !errors.Is(err, holdfast.ErrKind) {
			t.Errorf("a semaphore of another client: %v; want ErrKind", err)
		}
		if _, err := other.Latch("x").Set(t.Context(), 1); !errors.Is(err, holdfast.ErrKind) {
			t.Errorf("a latch: %v; want ErrKind", err)
		}
		if holders(t, other) != 1 {
			t.Error("the grant has gone back")
		}
		release(t, must(c.Semaphore("x", 2).Acquire(t.Context(), 1))(t))
	})
}

// The grant that follows a give-back goes back after d as well, although the give-back might have taken longer.
func TestIdleAgainAfterAGiveBack(t *testing.T) {
	const d = 30 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		mem := memlock.New()
		store := &hooks{Backend: mem}
		store.release = func(_ context.Context, _ driver.Hold, next func() error) error {
			time.Sleep(time.Millisecond)
			return next()
		}
		c := client(t, store, nil)
		takeX(t, c, holdfast.Sticky(d))
		time.Sleep(d)
		synctest.Wait()
		next := lockAsync(t, c.Mutex("x", holdfast.Sticky(d)).Lock)
		stillWaiting(t, "a call beside the give-back", next)
		time.Sleep(time.Millisecond)
		release(t, acquired(t, "the call", next))
		time.Sleep(d + 2*time.Millisecond)
		synctest.Wait()
		if r := must(mem.Inspect(t.Context(), "x"))(t); len(r.Holders) > 0 {
			t.Errorf("the idle grant is still there: %+v", r.Holders)
		}
	})
}

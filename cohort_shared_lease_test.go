package holdfast_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// sharing is two leases of a client under one grant.
type sharing struct {
	store   *memlock.Store
	c       *holdfast.Client
	a, b    *holdfast.Lease
	revoked *atomic.Int64 // leases of which the Observer was told that an operator asks for their release
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{store: memlock.New(), revoked: new(atomic.Int64)}
	s.c = client(t, s.store, &holdfast.Config{Observer: &holdfast.Observer{
		Revoked: func(string, uint64, holdfast.Notice) { s.revoked.Add(1) },
	}})
	both := share(t, s.store, s.c, 2)
	s.a, s.b = both[0], both[1]
	return s
}

// The lease of a reader that shares a grant is one like any other, as far as that can be.
func TestSharedLease(t *testing.T) {
	each := map[string]func(*testing.T, *sharing){
		"handed off while others read": func(t *testing.T, s *sharing) {
			if _, _, err := s.a.HandOff(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("HandOff = %v; want ErrInvalid", err)
			}
			if _, err := s.b.Ticket(); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("Ticket = %v; want ErrInvalid", err)
			}
			release(t, s.a)
			release(t, s.b)
		},
		"handed off by the last": func(t *testing.T, s *sharing) {
			release(t, s.a)
			text, adopted, err := s.b.HandOff()
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(s.b.Err(), holdfast.ErrReleased) {
				t.Errorf("after HandOff: %v", s.b.Err())
			}
			time.Sleep(3 * ttl)
			l := must(client(t, s.store, nil).Adopt(t.Context(), text))(t)
			time.Sleep(ttl)
			<-adopted
			if l.Token() != s.b.Token() || l.Err() != nil {
				t.Errorf("adopted with token %d, %v; want %d", l.Token(), l.Err(), s.b.Token())
			}
			release(t, l)
		},
		"an offer that is released": func(t *testing.T, s *sharing) {
			release(t, s.a)
			if _, _, err := s.b.HandOff(); err != nil {
				t.Fatal(err)
			}
			release(t, s.b)
		},
		"resumed": func(t *testing.T, s *sharing) {
			release(t, s.a)
			text := must(s.b.Ticket())(t)
			l := must(client(t, s.store, nil).Resume(t.Context(), text))(t)
			if err := s.b.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release of a lease that was resumed elsewhere: %v", err)
			}
			release(t, l)
		},
		"extended": func(t *testing.T, s *sharing) {
			if err := s.a.Extend(time.Second); err != nil {
				t.Fatal(err)
			}
			if left := s.a.Left(); left != time.Second {
				t.Errorf("%v left; want 1s", left)
			}
			ctx := s.a.Context(t.Context())
			<-ctx.Done()
			isLost(t, s.a.Err(), holdfast.ReasonMaxHold)
			if s.b.Err() != nil {
				t.Errorf("the other reader: %v", s.b.Err())
			}
			if h := s.c.Held(); len(h) != 1 {
				t.Errorf("held: %v", h)
			}
			records(t, s.store, 1, 0)
			if err := s.b.Extend(time.Second); err != nil {
				t.Fatal(err)
			}
			<-s.b.Done()
			synctest.Wait() // the last one has ended, so the grant goes back
		},
		"downgraded": func(t *testing.T, s *sharing) {
			if err := s.a.Downgrade(); err != nil {
				t.Error(err)
			}
			release(t, s.a)
			if err := s.a.Downgrade(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("Downgrade after Release: %v", err)
			}
			release(t, s.b)
		},
		"asked for": func(t *testing.T, s *sharing) {
			if err := client(t, s.store, nil).Revoke(t.Context(), "x", s.a.GrantToken(), "please"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl)
			synctest.Wait()
			if s.a.Revocation() == nil || s.b.Revocation() == nil || s.revoked.Load() != 2 {
				t.Errorf("the readers do not know: %v, %v; %d were told", s.a.Revocation(), s.b.Revocation(), s.revoked.Load())
			}
			release(t, s.a)
			release(t, s.b)
		},
		"lent": func(t *testing.T, s *sharing) {
			ctx := s.a.Context(t.Context())
			inner := must(s.c.RWMutex("x", holdfast.Reentrant()).RLock(ctx))(t)
			if _, err := s.c.RWMutex("x").Lock(ctx); !errors.Is(err, holdfast.ErrUpgrade) {
				t.Errorf("Lock under a read lease: %v", err)
			}
			release(t, s.b)
			release(t, inner)
			if s.a.Err() != nil {
				t.Errorf("after a borrowed lease: %v", s.a.Err())
			}
			inner = must(s.c.RWMutex("x", holdfast.Reentrant()).RLock(ctx))(t)
			release(t, s.a)
			if inner.Err() == nil {
				t.Error("the borrowed lease goes on")
			}
		},
		"the session ends": func(t *testing.T, s *sharing) {
			if err := s.c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.a.Ticket(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("Ticket after Close: %v", err)
			}
		},
	}
	for name, f := range each {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSharing(t)
				f(t, s)
				records(t, s.store, 0, 0)
			})
		})
	}
}

// A reader whom no other waits with has a grant of its own, and asks the store as any lease does.
func TestLoneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		r := acquired(t, "a reader", reads(t, c, 1)[0])
		if err := r.Extend(time.Second); err != nil {
			t.Fatal(err)
		}
		if err := store.Break(t.Context(), "x", r.GrantToken()); err != nil {
			t.Fatal(err)
		}
		if err := r.Extend(ttl); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Extend after a break: %v", err)
		}
		if err := r.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release after a break: %v", err)
		}
		release(t, acquired(t, "another reader", reads(t, c, 1)[0]))
		records(t, store, 0, 0)
	})
}

// Each reader of a grant that an operator breaks learns who did that and why, from its lease and by the
// Observer, once.
func TestReadersLearnWhoBrokeTheirGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var e ends
		var mu sync.Mutex
		reasons := map[holdfast.Reason]int{}
		o := e.observer()
		o.Lost = func(_ string, _ uint64, r holdfast.Reason) { mu.Lock(); reasons[r]++; mu.Unlock() }
		c := client(t, store, &holdfast.Config{Observer: o})
		readers := share(t, store, c, 3)
		ctx := readers[1].Context(t.Context())
		if err := client(t, store, nil).Break(t.Context(), "x", readers[0].GrantToken(), "stuck"); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		for i, l := range readers {
			<-l.Done()
			var why *holdfast.Error
			isLost(t, l.Why(), holdfast.ReasonBroken)
			if errors.As(l.Err(), &why); why.Notice == nil || why.Notice.Reason != "stuck" {
				t.Errorf("reader %d: %v", i, l.Err())
			}
			if l.Left() != 0 || l.Valid(0) {
				t.Errorf("reader %d has %v left", i, l.Left())
			}
			isLost(t, l.Release(), holdfast.ReasonBroken)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(reasons) != 1 || reasons[holdfast.ReasonBroken] != 3 {
			t.Errorf("losses by reason: %v", reasons)
		}
		if _, leases := e.lines(); len(leases) != 3 || leases[2] != "x shared "+string(holdfast.ReasonBroken) {
			t.Errorf("ends: %v", leases)
		}
		if h := c.Health(); h.Held != 0 {
			t.Errorf("%d are held", h.Held)
		}
	})
}

package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// passed is a client whose lease l has come by a pass, and a call of it that waits in line.
type passed struct {
	store *memlock.Store
	c     *holdfast.Client
	l     *holdfast.Lease
	next  <-chan *holdfast.Lease
}

func newPassed(t *testing.T) *passed {
	t.Helper()
	p := &passed{store: memlock.New()}
	p.c = client(t, p.store, nil)
	p.l = lock(t, p.c, "x")
	all := queue(t, p.c, 4)
	for _, ch := range all[:3] {
		release(t, p.l)
		p.l = acquired(t, "a waiter", ch)
	}
	p.next = all[3]
	return p
}

// A lease that has come by a pass is one like any other.
func TestPassedLease(t *testing.T) {
	each := map[string]func(*testing.T, *passed){
		"renewed": func(t *testing.T, p *passed) {
			time.Sleep(5 * ttl)
			stillWaiting(t, "the next", p.next)
			turns(t, p.l, p.next)
		},
		"broken": func(t *testing.T, p *passed) {
			r := must(p.c.Inspect(t.Context(), "x"))(t)
			if r.Holders[0].Token < p.l.Token() {
				t.Errorf("the record has token %d, the lease %d", r.Holders[0].Token, p.l.Token())
			}
			if err := p.c.Break(t.Context(), "x", r.Holders[0].Token, "a test"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // the time of passes
			n := acquired(t, "the next", p.next)
			if n.Token() <= r.Holders[0].Token {
				t.Errorf("token %d after %d was broken", n.Token(), r.Holders[0].Token)
			}
			if err := p.l.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release = %v", err)
			}
			release(t, n)
		},
		"handed off": func(t *testing.T, p *passed) {
			text, adopted, err := p.l.HandOff()
			if err != nil {
				t.Fatal(err)
			}
			a := must(client(t, p.store, nil).Adopt(t.Context(), text))(t)
			time.Sleep(ttl)
			<-adopted
			if a.Token() != p.l.Token() || a.Err() != nil {
				t.Errorf("adopted with token %d, %v; want %d", a.Token(), a.Err(), p.l.Token())
			}
			stillWaiting(t, "the next", p.next)
			again := must(a.Ticket())(t)
			if err := a.Release(); err != nil {
				t.Error(err)
			}
			if n := acquired(t, "the next", p.next); n.Token() <= a.Token() {
				t.Errorf("token %d after %d", n.Token(), a.Token())
			}
			if again == text {
				t.Error("the adopted lease has the same ticket")
			}
		},
		"downgraded": func(t *testing.T, p *passed) {
			if err := p.l.Downgrade(); err != nil {
				t.Fatal(err)
			}
			stillWaiting(t, "the next", p.next)
			turns(t, p.l, p.next)
		},
		"asked for": func(t *testing.T, p *passed) {
			r := must(p.c.Inspect(t.Context(), "x"))(t)
			if err := client(t, p.store, nil).Revoke(t.Context(), "x", r.Holders[0].Token, "please"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl)
			if p.l.Revocation() == nil {
				t.Error("the holder does not know")
			}
			turns(t, p.l, p.next)
		},
		"lent": func(t *testing.T, p *passed) {
			ctx := p.l.Context(t.Context())
			inner := must(p.c.Mutex("x", holdfast.Reentrant()).Lock(ctx))(t)
			if inner.Token() != p.l.Token() {
				t.Errorf("borrowed with token %d, not %d", inner.Token(), p.l.Token())
			}
			release(t, inner)
			stillWaiting(t, "the next", p.next)
			release(t, p.l)
			if ctx.Err() == nil {
				t.Error("its context goes on")
			}
			if err := p.l.Release(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("released again: %v", err)
			}
			release(t, acquired(t, "the next", p.next))
		},
		"resumed before its release": func(t *testing.T, p *passed) {
			text := must(p.l.Ticket())(t)
			r := must(client(t, p.store, nil).Resume(t.Context(), text))(t)
			if err := p.l.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release = %v", err)
			}
			stillWaiting(t, "the next", p.next)
			turns(t, r, p.next)
		},
		"resumed after its release": func(t *testing.T, p *passed) {
			text := must(p.l.Ticket())(t)
			release(t, p.l)
			n := acquired(t, "the next", p.next)
			if _, err := client(t, p.store, nil).Resume(t.Context(), text); !errors.Is(err, holdfast.ErrGone) {
				t.Errorf("Resume = %v", err)
			}
			if _, err := p.l.Ticket(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("Ticket = %v", err)
			}
			release(t, n)
		},
		"closed": func(t *testing.T, p *passed) {
			release(t, p.l)
			release(t, acquired(t, "the next", p.next))
			if err := p.c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if r := must(client(t, p.store, nil).Inspect(t.Context(), "x"))(t); r.Kind != "" {
				t.Errorf("in use after Close: %+v", r)
			}
		},
	}
	for name, f := range each {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, newPassed(t))
			})
		})
	}
}

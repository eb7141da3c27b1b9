package drivertest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

var callBacks = []check{
	{"R22", "call-back", "a grant that asked for it is called back when another request joins the queue, and by nothing else",
		func(e *env) {
			a, b := e.peer(), e.peer()
			r := a.req("x")
			r.CallBack = true
			if !a.Kinds().CallBack {
				if _, err := a.Acquire(e.ctx, r); !errors.Is(err, driver.ErrInvalid) {
					e.Fatalf("a request that wants to be called back, by a store that does not: %v; want ErrInvalid", err)
				}
				return
			}
			h := a.get(r)
			b.refused(once(b.req("x")))
			a.notCalled("by a request that was refused")
			b.get(b.req("other"))
			a.notCalled("by a request for another name")
			w := b.joinQueue(b.req("x"))
			a.calledBack(h, "when a request joins the queue")
			v := b.joinQueue(b.shared("x"))
			a.calledBack(h, "when a reader joins the queue")
			b.renew(place(w.r))
			a.calledBack(h, "when a place is renewed")
			if ch := a.renew(h); ch.State != 0 {
				e.Fatalf("a grant that was called back: %+v", ch)
			}
			a.release(h)
			g := w.granted()
			b.release(g)
			b.release(v.granted())
			a.notCalled("after its release")
			b.notCalled("although it did not ask for it")

			plain := a.get(a.req("x"))
			w = b.joinQueue(b.req("x"))
			a.notCalled("although it did not ask for it")
			a.release(plain)
			b.release(w.granted())
		}},
	{"R22", "call-back again and again", "grants of one name, taken at once as often as the store has a faster way, are called back",
		func(e *env) {
			a, b := e.peer(), e.peer()
			if !a.Kinds().CallBack {
				return
			}
			for range 12 {
				r := a.req("x")
				r.CallBack = true
				a.release(a.get(r))
			}
			for range 12 {
				r := a.req("x")
				r.CallBack = true
				h := a.get(r)
				w := b.joinQueue(b.req("x"))
				a.calledBack(h, "when a request joins the queue")
				a.release(h)
				b.release(w.granted())
			}
		}},
	{"R22", "large blocks", "a grant that is called back may take more tokens than others, each of them once", func(e *env) {
		a, b := e.peer(), e.peer()
		if !a.Kinds().CallBack {
			return
		}
		last := uint64(0)
		for _, n := range []int{driver.MaxCallBackTokens, 1, driver.MaxCallBackTokens, driver.MaxCallBackTokens, 0} {
			r := a.req("x")
			r.CallBack, r.Tokens = true, n
			h := a.get(r)
			if n := r.Granted(h.Token, a.Kinds()); h.Token < last+uint64(n) {
				e.Fatalf("token %d after %d, for a grant that takes %d", h.Token, last, n)
			}
			last = h.Token
			w := b.joinQueue(b.req("x"))
			a.release(h)
			g := w.granted()
			if g.Token <= last {
				e.Fatalf("token %d after %d", g.Token, last)
			}
			last = g.Token
			b.release(g)
		}
		r := a.req("x")
		r.CallBack, r.Tokens = true, driver.MaxCallBackTokens+1
		if _, err := a.Acquire(e.ctx, r); !errors.Is(err, driver.ErrInvalid) {
			e.Fatalf("a block of %d: %v; want ErrInvalid", r.Tokens, err)
		}
	}},
	{"R22", "handed over", "a waiter that wanted to be called back is served as any other", func(e *env) {
		a, b := e.peer(), e.peer()
		if !a.Kinds().CallBack {
			return
		}
		h := b.get(b.req("x"))
		r := a.req("x")
		r.CallBack = true
		w := a.joinQueue(r)
		v := b.joinQueue(b.req("x"))
		b.release(h)
		g := w.granted()
		if ch := a.renew(g); ch.State != 0 {
			e.Fatalf("renewed: %+v", ch)
		}
		a.release(g)
		b.release(v.granted())
	}},
	{"R22", "adopted", "a grant that another session has adopted calls nobody back", func(e *env) {
		a, b, c := e.peer(), e.peer(), e.peer()
		if !a.Kinds().CallBack {
			return
		}
		r := a.req("x")
		r.CallBack = true
		adopted := b.adopt(a.get(r))
		w := c.joinQueue(c.req("x"))
		c.renew(place(w.r))
		a.notCalled("although another session has adopted its grant")
		b.notCalled("although it did not ask for it")
		b.release(adopted)
		c.release(w.granted())
	}},
	{"R22", "sticky clients", "clients that keep idle grants exclude each other and others, and call the grants back",
		func(e *env) {
			if !e.healthy().Kinds().CallBack {
				return
			}
			const each = 60
			sticks := []holdfast.Option{holdfast.Sticky(time.Hour)}
			users := []struct {
				c    *holdfast.Client
				opts []holdfast.Option
			}{{e.client(nil), sticks}, {e.client(nil), sticks}, {e.client(nil), nil}}
			var mu sync.Mutex
			inside, last := 0, uint64(0)
			var all sync.WaitGroup
			for i := range 6 {
				u := users[i%len(users)]
				all.Go(func() {
					for range each {
						l, err := u.c.Mutex(e.name("x"), u.opts...).Lock(e.ctx)
						if err != nil {
							e.Errorf("Lock: %v", err)
							return
						}
						mu.Lock()
						if inside++; inside != 1 || l.Token() <= last {
							e.Errorf("%d inside, token %d after %d", inside, l.Token(), last)
						}
						last = max(last, l.Token())
						mu.Unlock()
						if rand.IntN(4) == 0 {
							time.Sleep(time.Millisecond)
						}
						mu.Lock()
						inside--
						mu.Unlock()
						if err := l.Release(); err != nil {
							e.Errorf("Release: %v", err)
						}
						if rand.IntN(4) == 0 {
							time.Sleep(2 * time.Millisecond) // the grant is idle, or another client's
						}
					}
				})
			}
			all.Wait()
		}},
}

// calledBack waits for the next call-back, which has to be of the grant h.
func (p *peer) calledBack(h driver.Hold, why string) {
	p.e.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case id := <-p.called:
		if id != h.ID {
			p.e.Fatalf("%s: called back %q; want the grant %q", why, id, h.ID)
		}
	case <-timer.C:
		p.e.Fatalf("not called back: %s", why)
	}
}

// notCalled waits a moment: nothing may be called back.
func (p *peer) notCalled(why string) {
	p.e.Helper()
	select {
	case id := <-p.called:
		p.e.Fatalf("called back %q %s", id, why)
	case <-time.After(quiet):
	}
}

package drivertest

import (
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

var line = []check{
	{"R7", "handed over", "a release hands the lock to the waiter by push: nothing more to ask", func(e *env) {
		a, b := e.party(), e.party()
		h := a.get(a.req("x"))
		for i := range 5 {
			r := b.req("x")
			reply := b.refused(r)
			if reply.Ahead != 0 {
				e.Errorf("Ahead = %d for the head of the line", reply.Ahead)
			}
			start := time.Now()
			a.release(h)
			var token uint64
			select {
			case token = <-reply.Wake:
			case <-time.After(e.ttl / 2):
			}
			if token <= h.Token {
				e.Fatalf("round %d: woken with token %d after %v; want one above %d, pushed at once", i, token, time.Since(start), h.Token)
			}
			h = driver.Hold{Name: r.Name, ID: r.ID, Token: token}
			if ch := b.renew(h); ch.State != 0 {
				e.Fatalf("Renew of a lock handed over = %+v", ch)
			}
			a, b = b, a
		}
	}},
	{"R7", "arrival order", "200 waiters of 10 sessions are served in the order of their arrival", func(e *env) {
		parties := make([]*party, 10)
		for i := range parties {
			parties[i] = e.party()
		}
		holder := parties[0]
		h := holder.get(holder.req("x"))
		stop := e.renewing(holder, func() driver.Hold { return h })
		type waiter struct {
			p     *party
			r     *driver.Request
			reply driver.Reply
		}
		var waiters []waiter
		beats := time.NewTicker(e.ttl / 4)
		defer beats.Stop()
		prove := func(waiters []waiter) { // the life of those who wait, when it is time
			select {
			case <-beats.C:
			default:
				return
			}
			places := map[*party][]driver.Hold{}
			for _, w := range waiters {
				places[w.p] = append(places[w.p], place(w.r))
			}
			for p, holds := range places {
				if _, err := p.Renew(e.ctx, holds); err != nil {
					e.Fatalf("Renew: %v", err)
				}
			}
		}
		for i := range 200 {
			prove(waiters)
			p := parties[(i*7)%10]
			r := p.req("x")
			w := waiter{p, r, p.refused(r)}
			if w.reply.Ahead != i {
				e.Fatalf("waiter %d: Ahead = %d", i, w.reply.Ahead)
			}
			waiters = append(waiters, w)
		}
		if rec := holder.inspect("x"); rec.Waiting != 200 || len(rec.Waiters) != driver.MaxWaiters || rec.Waiters[3].ID != waiters[3].r.ID || rec.Waiters[3].Info != waiters[3].r.Info {
			e.Errorf("Inspect: %d waiting, %d listed; want 200 and %d, in order", rec.Waiting, len(rec.Waiters), driver.MaxWaiters)
		}
		stop()
		if ch := holder.renew(h); ch.State != 0 {
			e.Fatalf("the holder's Renew = %+v", ch)
		}
		for i, w := range waiters {
			prove(waiters[i:])
			holder.release(h)
			token := w.p.woken(w.r, &w.reply, 2*e.ttl)
			if token <= h.Token {
				e.Fatalf("waiter %d got token %d after %d", i, token, h.Token)
			}
			holder, h = w.p, driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: token}
		}
	}},
	{"R5", "repeat in line", "a waiter that asks again keeps its place and has only one", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		h := a.get(a.req("x"))
		rb, rc := b.req("x"), c.req("x")
		b.refused(rb)
		wc := c.refused(rc)
		wb := b.refused(rb)
		if wb.Ahead != 0 || wc.Ahead != 1 {
			e.Errorf("Ahead = %d and %d; want 0 and 1", wb.Ahead, wc.Ahead)
		}
		if rec := a.inspect("x"); rec.Waiting != 2 {
			e.Errorf("%d waiting; want 2", rec.Waiting)
		}
		a.release(h)
		token := b.woken(rb, &wb, e.ttl/2)
		if token == 0 {
			e.Fatal("the first waiter was not served first")
		}
		b.release(driver.Hold{Name: rb.Name, ID: rb.ID, Token: token})
		if c.woken(rc, &wc, e.ttl/2) == 0 {
			e.Fatal("the second waiter was not served")
		}
	}},
	{"R8", "cancel", "who cancels leaves the line, or gives back a grant that was quicker", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		h := a.get(a.req("x"))
		rb, rc := b.req("x"), c.req("x")
		b.refused(rb)
		wc := c.refused(rc)
		for range 2 {
			if err := b.Cancel(e.ctx, rb.Name, rb.ID); err != nil {
				e.Fatalf("Cancel: %v", err)
			}
		}
		if rec := a.inspect("x"); rec.Waiting != 1 {
			e.Errorf("%d waiting after Cancel; want 1", rec.Waiting)
		}
		a.release(h)
		if c.woken(rc, &wc, e.ttl/2) == 0 {
			e.Fatal("the one behind was not served")
		}
		ra := a.req("x")
		wa := a.refused(ra)
		if err := c.Cancel(e.ctx, rc.Name, rc.ID); err != nil { // it holds by now
			e.Fatalf("Cancel: %v", err)
		}
		if a.woken(ra, &wa, e.ttl/2) == 0 {
			e.Fatal("a grant that was cancelled was not passed on")
		}
	}},
	{"R8", "cancel races", "a cancel and a release that cross leave the lock free", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		for range 50 {
			h := a.get(a.req("x"))
			rb := b.req("x")
			b.refused(rb)
			var both sync.WaitGroup
			both.Go(func() { a.Release(e.ctx, h, 0) })
			both.Go(func() { b.Cancel(e.ctx, rb.Name, rb.ID) })
			both.Wait()
			c.release(c.get(once(c.req("x"))))
		}
	}},
	{"R6", "dead waiter", "a waiter whose process died is passed over, at the latest when its place runs out", func(e *env) {
		e.expires()
		e.passedOver(func(b *party) { b.Kill() })
	}},
	{"R6", "silent waiter", "a waiter that is cut off stalls the line no longer than its place lasts", func(e *env) {
		e.expires()
		e.passedOver(func(b *party) { e.Cleanup(b.Cut()) })
	}},
	{"R6", "lapsed place", "a place that is not renewed lapses: Renew says so, and asking again joins at the end", func(e *env) {
		e.expires()
		a, b, c := e.party(), e.party(), e.party()
		h := a.get(a.req("x"))
		stop := e.renewing(a, func() driver.Hold { return h })
		rb := b.req("x")
		b.refused(rb)
		time.Sleep(e.ttl + e.slack()/5)
		if ch := b.renew(place(rb)); ch.State != driver.Gone {
			e.Errorf("Renew of a lapsed place = %+v; want Gone", ch)
		}
		rc := c.req("x")
		wc := c.refused(rc)
		if wb := b.refused(rb); wb.Ahead != 1 {
			e.Errorf("Ahead = %d after a lapse; want 1", wb.Ahead)
		}
		stop()
		a.release(h)
		if c.woken(rc, &wc, e.ttl/2) == 0 {
			e.Fatal("the one in front was not served")
		}
	}},
	{"R6", "lease of a hand-over", "a lock handed over stands for a TTL from the waiter's last sign of life, no less and little more", func(e *env) {
		e.expires()
		a, b, c := e.party(), e.party(), e.party()
		h := a.get(a.req("x"))
		stop := e.renewing(a, func() driver.Hold { return h })
		time.Sleep(e.ttl / 2)
		rb, rc := b.req("x"), c.req("x")
		sent := time.Now()
		wb := b.refused(rb)
		asked := time.Now()
		wc := c.refused(rc)
		time.Sleep(e.ttl * 6 / 10)
		c.renew(place(rc))
		stop()
		a.release(h)
		token := b.woken(rb, &wb, e.ttl/2)
		if token == 0 {
			e.Fatal("not handed over")
		}
		if c.waits(rc, wc, 2*e.ttl+e.slack()) == 0 {
			e.Fatal("the second waiter was not served")
		}
		got := time.Now()
		if got.Sub(sent) < e.ttl {
			e.Errorf("the lease ended %v after its holder's last sign of life; the TTL is %v", got.Sub(sent), e.ttl)
		}
		if got.Sub(asked) > e.ttl*14/10 { // a lease from the hand-over on would last 1.6
			e.Errorf("a dead holder that never used its grant stalled the line until %v after its last sign of life; the TTL is %v", got.Sub(asked), e.ttl)
		}
	}},
	{"R11", "lost wake-up", "a wake-up that nobody heard costs time only: Renew tells of the grant, and so does asking", func(e *env) {
		a, b := e.party(), e.party()
		for _, way := range []string{"renew", "ask"} {
			h := a.get(a.req("x"))
			rb := b.req("x")
			b.refused(rb) // its Wake is not read
			a.release(h)
			var token uint64
			if way == "renew" {
				ch := b.renew(place(rb))
				if ch.State != driver.Granted {
					e.Fatalf("Renew of a place that was granted = %+v; want Granted", ch)
				}
				token = ch.Token
			} else {
				token = b.get(rb).Token
			}
			b.release(driver.Hold{Name: rb.Name, ID: rb.ID, Token: token})
		}
	}},
	{"R11", "waiting is told", "Renew of a place tells the place and when to ask again", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		a.get(a.req("x"))
		b.refused(b.req("x"))
		rc := c.req("x")
		c.refused(rc)
		ch := c.renew(place(rc))
		if ch.State != driver.Waiting || ch.Ahead != 1 || ch.Retry <= 0 || ch.Retry > e.ttl {
			e.Errorf("Renew of a place = %+v; want Waiting, 1 ahead, 0 < Retry ≤ TTL", ch)
		}
	}},
	{"R6", "holder dies before the line", "waiters behind a holder that died get the lock when its lease has run out", func(e *env) {
		e.expires()
		a, b := e.party(), e.party()
		start := time.Now()
		h := a.get(a.req("x"))
		rb := b.req("x")
		wb := b.refused(rb)
		a.Kill()
		token := b.waits(rb, wb, 2*e.ttl+e.slack())
		if token <= h.Token {
			e.Fatalf("token %d after %d, %v after the grant", token, h.Token, time.Since(start))
		}
		if d := time.Since(start); d > e.ttl+e.slack() {
			e.Errorf("the lock of a dead holder came free after %v; the TTL is %v", d, e.ttl)
		}
	}},
}

// passedOver hurts the first of two waiters and releases the lock: the second must get it.
func (e *env) passedOver(hurt func(first *party)) {
	e.Helper()
	a, b, c := e.party(), e.party(), e.party()
	h := a.get(a.req("x"))
	stop := e.renewing(a, func() driver.Hold { return h })
	b.refused(b.req("x"))
	rc := c.req("x")
	wc := c.refused(rc)
	hurt(b)
	stop()
	start := time.Now()
	a.release(h)
	if token := c.waits(rc, wc, 2*e.ttl+e.slack()); token == 0 {
		e.Fatalf("the one behind has waited for %v", time.Since(start))
	} else if d := time.Since(start); d > e.ttl+e.ttl/3+e.slack() {
		e.Errorf("the one behind waited %v; the TTL is %v", d, e.ttl)
	}
}

// renewing renews a hold in the background until stop is called, which returns when it
// has stopped. A stop left out comes with the end of the check.
func (e *env) renewing(p *party, hold func() driver.Hold) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		beat := time.NewTicker(e.ttl / 4)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				if changes, err := p.Renew(e.ctx, []driver.Hold{hold()}); err != nil || len(changes) > 0 {
					e.Errorf("Renew in the background: %+v, %v", changes, err)
					return
				}
			case <-quit:
				return
			case <-e.ctx.Done():
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() { close(quit); <-done })
	e.Cleanup(stop)
	return stop
}

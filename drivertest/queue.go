package drivertest

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

var queue = []check{
	{"R7", "handed over", "a release hands the lock to the waiter by push: the waiter need not ask again", func(e *env) {
		a, b := e.peer(), e.peer()
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
			case <-time.After(patience):
			}
			if token <= h.Token {
				e.Fatalf("round %d: woken with token %d after %v; want one above %d, pushed at once", i, token, time.Since(start),
					h.Token)
			}
			h = driver.Hold{Name: r.Name, ID: r.ID, Token: token}
			if ch := b.renew(h); ch.State != 0 {
				e.Fatalf("Renew of a lock handed over = %+v", ch)
			}
			a, b = b, a
		}
	}},
	{"R7", "arrival order", "many waiters of 10 sessions are served in order of arrival", func(e *env) {
		parties := make([]*peer, 10)
		for i := range parties {
			parties[i] = e.peerFor(2 * longTTL) // a slow machine serves the last waiter late
		}
		holder := parties[0]
		h := holder.get(holder.req("x"))
		var waiters []*waiter
		many := cmp.Or(e.h.Waiters, 200)
		for i := range many {
			p := parties[(i*7)%10]
			w := p.joinQueue(p.req("x"))
			if w.reply.Ahead != i {
				e.Fatalf("waiter %d: Ahead = %d", i, w.reply.Ahead)
			}
			waiters = append(waiters, w)
		}
		if rec := holder.inspect("x"); rec.Waiting != many || len(rec.Waiters) != min(many, driver.MaxWaiters) ||
			rec.Waiters[3].ID != waiters[3].r.ID || rec.Waiters[3].Info != waiters[3].r.Info {
			e.Errorf("Inspect: %d waiting, %d listed; want %d and %d, in order", rec.Waiting, len(rec.Waiters), many,
				min(many, driver.MaxWaiters))
		}
		for i, w := range waiters {
			holder.release(h)
			token := w.p.waitPush(w.r, &w.reply, patience)
			if token <= h.Token {
				e.Fatalf("waiter %d got token %d after %d", i, token, h.Token)
			}
			holder, h = w.p, driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: token}
		}
	}},
	{"R5", "repeat in the queue", "a waiter that asks again keeps its place and has only one", func(e *env) {
		a, b, c := e.peer(), e.peer(), e.peer()
		h := a.get(a.req("x"))
		rb, rc := b.req("x"), c.req("x")
		b.joinQueue(rb)
		wc := c.joinQueue(rc).reply
		wb := b.refused(rb)
		if wb.Ahead != 0 || wc.Ahead != 1 {
			e.Errorf("Ahead = %d and %d; want 0 and 1", wb.Ahead, wc.Ahead)
		}
		if rec := a.inspect("x"); rec.Waiting != 2 {
			e.Errorf("%d waiting; want 2", rec.Waiting)
		}
		a.release(h)
		token := b.waitPush(rb, &wb, patience)
		if token == 0 {
			e.Fatal("the first waiter was not served first")
		}
		b.release(driver.Hold{Name: rb.Name, ID: rb.ID, Token: token})
		if c.waitPush(rc, &wc, patience) == 0 {
			e.Fatal("the second waiter was not served")
		}
	}},
	{"R8", "cancel", "a cancelled request leaves the queue, or its grant ends if that came first", func(e *env) {
		a, b, c := e.peer(), e.peer(), e.peer()
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
		if c.waitPush(rc, &wc, patience) == 0 {
			e.Fatal("the next waiter was not served")
		}
		ra := a.req("x")
		wa := a.refused(ra)
		if err := c.Cancel(e.ctx, rc.Name, rc.ID); err != nil { // it may hold the lock by now
			e.Fatalf("Cancel: %v", err)
		}
		if a.waitPush(ra, &wa, patience) == 0 {
			e.Fatal("a cancelled grant did not go to the next waiter")
		}
	}},
	{"R8", "cancel races", "a cancel and a release that cross leave the lock free", func(e *env) {
		a, b, c := e.peer(), e.peer(), e.peer()
		for range 50 {
			h := a.get(a.req("x"))
			rb := b.req("x")
			b.refused(rb)
			var both sync.WaitGroup
			both.Go(func() { // a repeat finds that the first has released
				err := e.answered(func() error { return a.Release(e.ctx, h, 0) })
				if err != nil && !driver.IsOver(err) {
					e.Errorf("Release: %v", err)
				}
			})
			both.Go(func() {
				if err := e.answered(func() error { return b.Cancel(e.ctx, rb.Name, rb.ID) }); err != nil {
					e.Errorf("Cancel: %v", err)
				}
			})
			both.Wait()
			c.release(c.get(once(c.req("x"))))
		}
	}},
	{"R6", "dead waiter", "a waiter whose process died is passed over, at the latest when its place expires",
		func(e *env) {
			e.useExpiry()
			e.passedOver(func(b *peer) { b.Kill() })
		}},
	{"R6", "silent waiter", "a waiter that is cut off delays the queue no longer than its place lasts", func(e *env) {
		e.useExpiry()
		e.passedOver(func(b *peer) { e.Cleanup(b.Cut()) })
	}},
	{"R6", "expired place", "a place that is not renewed expires: Renew reports that, and asking again joins at the end",
		func(e *env) {
			e.useExpiry()
			a, b, c := e.peer(), e.shortPeer(), e.peer()
			h := a.get(a.req("x"))
			rb := b.req("x")
			b.refused(rb)
			e.sleepPastTTL()
			e.until("the place has expired", func() bool { return a.inspect("x").Waiting == 0 }) // a store may be late
			if ch := b.renew(place(rb)); ch.State != driver.Gone {
				e.Errorf("Renew of an expired place = %+v; want Gone", ch)
			}
			rc := c.req("x")
			wc := c.refused(rc)
			if wb := b.refused(rb); wb.Ahead != 1 {
				e.Errorf("Ahead = %d after an expiry; want 1", wb.Ahead)
			}
			a.release(h)
			if c.waitPush(rc, &wc, patience) == 0 {
				e.Fatal("the first waiter was not served")
			}
		}},
	{
		"R6", "lease of a hand-over",
		"a lock that is handed over lasts a TTL from the waiter's last renewal, no less and little more", func(e *env) {
			e.useExpiry()
			a, c := e.peer(), e.peer()
			e.retrySlow(func() (slow bool) {
				b := e.shortPeer()
				h := a.get(a.req("x"))
				rb, rc := b.req("x"), c.req("x")
				life := proof{e, b, time.Now()}
				wb := b.refused(rb)
				asked := time.Now()
				wc := c.refused(rc)
				time.Sleep(e.h.TTL * 6 / 10)
				a.release(h)
				if b.waitPush(rb, &wb, e.h.TTL) == 0 {
					return true // if the push never comes, no try succeeds
				}
				if c.waitGrant(rc, wc, patience) == 0 {
					e.Fatal("the second waiter was not served")
				}
				if !life.over() {
					e.Errorf("the lease ended %v after its holder's last renewal; the TTL is %v", time.Since(life.sent), e.h.TTL)
				}
				if d := time.Since(asked); d > e.h.TTL*9/10+e.slack() { // counted from the hand-over: 1.6
					e.Errorf(
						"a dead holder that never used its grant delayed the queue until %v after its last renewal; the TTL is %v",
						d, e.h.TTL)
				}
				return false
			})
		}},
	{"R11", "lost push", "a push that was lost costs time only: Renew and Acquire return the grant", func(e *env) {
		a, b := e.peer(), e.peer()
		for _, way := range []string{"renew", "ask"} {
			h := a.get(a.req("x"))
			rb := b.req("x")
			b.refused(rb) // nobody reads its Wake
			a.release(h)
			var token uint64
			if way == "renew" {
				e.eventually(func(context.Context) bool { // the servers of a quorum need not agree at once
					ch := b.renew(place(rb))
					if ch.State != driver.Granted && ch.State != driver.Waiting {
						e.Fatalf("Renew of a place that was granted = %+v; want Granted", ch)
					}
					token = ch.Token
					return ch.State == driver.Granted
				})
			} else {
				token = b.get(rb).Token
			}
			b.release(driver.Hold{Name: rb.Name, ID: rb.ID, Token: token})
		}
	}},
	{"R11", "renew of a place", "Renew of a place returns the place and when to ask again", func(e *env) {
		a, b, c := e.peer(), e.peer(), e.peer()
		a.get(a.req("x"))
		b.refused(b.req("x"))
		rc := c.req("x")
		c.refused(rc)
		ch := c.renew(place(rc))
		if ch.State != driver.Waiting || ch.Ahead != 1 || ch.Retry <= 0 || ch.Retry > e.ttl {
			e.Errorf("Renew of a place = %+v; want Waiting, 1 ahead, 0 < Retry ≤ TTL", ch)
		}
	}},
	{"R6", "dead holder before a queue", "waiters behind a dead holder get the lock when its lease has expired",
		func(e *env) {
			e.useExpiry()
			a, b := e.shortPeer(), e.peer()
			h := a.get(a.req("x"))
			rb := b.req("x")
			wb := b.ask(rb)
			start := time.Now()
			a.Kill() // the store may notice that at once
			token := b.waitGrant(rb, wb, e.h.TTL+patience)
			if d := time.Since(start); token <= h.Token || d > e.h.TTL+e.slack() {
				e.Errorf("token %d after %d, %v after the death; the TTL is %v", token, h.Token, d, e.h.TTL)
			}
		}},
}

// passedOver injects a fault into the first of two waiters and releases the lock: the second must
// get it.
func (e *env) passedOver(hurt func(first *peer)) {
	e.Helper()
	a, b, c := e.peer(), e.shortPeer(), e.peer()
	h := a.get(a.req("x"))
	b.refused(b.req("x"))
	rc := c.req("x")
	wc := c.refused(rc)
	hurt(b)
	start := time.Now()
	a.release(h)
	token := c.waitGrant(rc, wc, e.h.TTL+patience)
	if d := time.Since(start); token == 0 || d > e.h.TTL+e.renewEvery+e.slack() {
		e.Errorf("the next waiter got token %d after %v; the TTL is %v", token, d, e.h.TTL)
	}
}

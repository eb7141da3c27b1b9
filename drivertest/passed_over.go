package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// passed are the checks of waiters that were passed over.
var passed = []check{
	{
		"R14", "passed over while cut off",
		"a waiter was cut off while the lock went to another: it gets no grant next to that one when it returns",
		func(e *env) {
			e.passedBy(func(b *peer) func() { return b.Cut() })
		}},
	{
		"R14", "passed over while answers are lost",
		"the answers to a waiter were lost while the lock went to another: it gets no grant next to that one", func(e *env) {
			e.passedBy(func(b *peer) func() { return b.DropReplies() })
		}},
	{
		"R14", "passed over on a forgotten connection",
		"the connection of a waiter was forgotten while the lock went to another: it gets no grant next to that one",
		func(e *env) {
			e.passedBy(func(b *peer) func() {
				b.Forget()
				return func() {}
			})
		}},
	{
		"R14", "cancelled while handed over",
		"a waiter that cancelled gets no push, and nobody has the token that it was granted", func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			for range 5 {
				h := a.get(a.req("x"))
				first, second := b.joinQueue(b.req("x")), c.joinQueue(c.req("x"))
				wake := first.reply.Wake
				a.release(h)
				if err := b.Cancel(e.ctx, first.r.Name, first.r.ID); err != nil {
					e.Fatalf("Cancel: %v", err)
				}
				select { // a push from before the Cancel
				case <-wake:
				default:
				}
				hc := second.granted()
				for end := time.Now().Add(quiet / 4); time.Now().Before(end); time.Sleep(time.Millisecond) {
					select {
					case token := <-wake:
						if token != 0 {
							e.Fatalf("pushed token %d after Cancel; %d is on record", token, hc.Token)
						}
					default:
					}
				}
				c.release(hc)
			}
		}},
}

// passedBy lets the lock go past the first of two waiters, which returns when the second holds the
// lock.
func (e *env) passedBy(hurt func(*peer) (heal func())) {
	e.Helper()
	e.useExpiry()
	a, b, c := e.peer(), e.shortPeer(), e.peer()
	h := a.get(a.req("x"))
	first, second := b.joinQueue(b.req("x")), c.joinQueue(c.req("x"))
	heal := hurt(b)
	a.release(h)
	hc := second.granted()
	heal()
	e.noPush(first)
	var ch driver.Change
	over := false // with a store whose sessions expire: the place ended with the session, and nobody else has its ID
	e.eventually(func(ctx context.Context) bool {
		select {
		case <-b.Lost():
			over = true
			return true
		default:
		}
		changes, err := b.Renew(ctx, []driver.Hold{place(first.r)})
		if err == nil && len(changes) > 0 {
			ch = changes[0]
		}
		return err == nil && ch.State != driver.Unknown
	})
	if over {
		e.noPush(first)
		c.release(hc)
		return
	}
	if ch.State == driver.Granted {
		e.Fatalf("Renew of a place that was passed over = %+v, while token %d is held", ch, hc.Token)
	}
	if first.reply = b.retry(first.r); first.reply.Token != 0 {
		e.Fatalf("granted token %d while token %d was valid", first.reply.Token, hc.Token)
	}
	e.noPush(first)
	first.askAgain = true
	c.release(hc)
	if hb := first.granted(); hb.Token <= hc.Token {
		e.Errorf("token %d after %d", hb.Token, hc.Token)
	}
}

package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// passed are the checks of waiters whom the lock went past.
var passed = []check{
	{"R14", "passed over while cut off", "a waiter that was cut off while the lock went on to another is not granted beside it when it comes back", func(e *env) {
		e.passedBy(func(b *party) func() { return b.Cut() })
	}},
	{"R14", "passed over while deaf", "a waiter whose answers were lost while the lock went on to another is not granted beside it when it comes back", func(e *env) {
		e.passedBy(func(b *party) func() { return b.DropReplies() })
	}},
	{"R14", "passed over on a forgotten flow", "a waiter whose connection was forgotten while the lock went on to another is not granted beside it", func(e *env) {
		e.passedBy(func(b *party) func() {
			b.Forget()
			return func() {}
		})
	}},
	{"R14", "cancelled while handed over", "a waiter that cancelled hears nothing more, and the token that it was granted is nobody's", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		for range 5 {
			h := a.get(a.req("x"))
			first, second := b.joins(b.req("x")), c.joins(c.req("x"))
			wake := first.reply.Wake
			a.release(h)
			if err := b.Cancel(e.ctx, first.r.Name, first.r.ID); err != nil {
				e.Fatalf("Cancel: %v", err)
			}
			select { // what was pushed before the Cancel
			case <-wake:
			default:
			}
			hc := second.granted()
			for end := time.Now().Add(quiet / 4); time.Now().Before(end); time.Sleep(time.Millisecond) {
				select {
				case token := <-wake:
					if token != 0 {
						e.Fatalf("heard token %d after Cancel; %d is on record", token, hc.Token)
					}
				default:
				}
			}
			c.release(hc)
		}
	}},
}

// passedBy has a lock go past the first of two waiters, who comes back when the second holds it.
func (e *env) passedBy(hurt func(*party) (heal func())) {
	e.Helper()
	e.expires()
	a, b, c := e.party(), e.brief(), e.party()
	h := a.get(a.req("x"))
	first, second := b.joins(b.req("x")), c.joins(c.req("x"))
	heal := hurt(b)
	a.release(h)
	hc := second.granted()
	heal()
	e.silent(first)
	var ch driver.Change
	over := false // of a store whose sessions run out: the place went with it, and nobody else has its ID
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
		e.silent(first)
		c.release(hc)
		return
	}
	if ch.State == driver.Granted {
		e.Fatalf("Renew of a place that the lock went past = %+v, while token %d is held", ch, hc.Token)
	}
	if first.reply = b.retry(first.r); first.reply.Token != 0 {
		e.Fatalf("granted token %d beside token %d", first.reply.Token, hc.Token)
	}
	e.silent(first)
	first.asked = true
	c.release(hc)
	if hb := first.granted(); hb.Token <= hc.Token {
		e.Errorf("token %d after %d", hb.Token, hc.Token)
	}
}

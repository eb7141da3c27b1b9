package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// refusals are the checks of a store that answers and accepts no writes. Nothing must expire in
// them.
var refusals = []check{
	{
		"R13", "refused release",
		"a release that the store refuses to write sends no push and hands nothing over; a later repeat does", func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b, c := e.peer(), e.peer(), e.peer()
				h := a.get(a.req("x"))
				first, second := b.joinQueue(b.req("x")), c.joinQueue(c.req("x"))
				heal := refuse()
				if !e.isRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) }, first, second) {
					return
				}
				e.noPush(first, second)
				e.stillHeld(a, h, 2)
				heal()
				e.repeatRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) })
				hb := first.granted()
				b.release(hb)
				c.release(second.granted())
				a.release(a.get(once(a.req("x"))))
			})
		}},
	{
		"R13", "asking while refused",
		"a waiter that asks again or renews its place while the store refuses writes is not granted, and keeps the place",
		func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b := e.peer(), e.peer()
				h := a.get(a.req("x"))
				w := b.joinQueue(b.req("x"))
				heal := refuse()
				if !e.isRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) }, w) {
					return
				}
				for range 3 {
					e.mustNotRenew(b, place(w.r))
					e.mustNotGrant(b, w.r)
				}
				e.stillHeld(a, h, 1)
				heal()
				e.repeatRefused("Renew", func(ctx context.Context) error { return renewAll(ctx, b, place(w.r)) })
				kept := func(h driver.Holder) bool { return h.ID == w.r.ID }
				// If a's session repeats the release, servers that each have a queue do it one after the other.
				e.until("the record shows the same place", func() bool {
					rec := a.inspect("x")
					return slices.ContainsFunc(rec.Waiters, kept) || e.h.Insists && slices.ContainsFunc(rec.Holders, kept)
				})
				e.repeatRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) })
				w.askAgain = true
				b.release(w.granted())
			})
		}},
	{"R13", "refused renewal", "a renewal that the store refuses proves nothing and ends nothing", func(e *env) {
		e.refusals(func(refuse func() func()) {
			a, b := e.peer(), e.peer()
			holds := []driver.Hold{a.get(a.req("x")), a.get(a.req("y")), a.get(a.shared("z"))}
			b.get(b.req("w"))
			r := a.req("w")
			a.refused(r)
			holds = append(holds, place(r))
			heal := refuse()
			for range 3 {
				e.mustNotRenew(a, holds...)
			}
			heal()
			e.repeatRefused("Renew", func(ctx context.Context) error { return renewAll(ctx, a, holds...) })
			for _, h := range holds {
				if ch := a.renew(h); ch.State == driver.Gone || ch.State == driver.Granted {
					e.Errorf("Renew of %q after writes were refused for a moment = %+v", h.Name, ch)
				}
			}
			for _, h := range holds[:3] {
				a.release(h)
			}
		})
	}},
	{
		"R13", "refused acquire",
		"a request that the store refuses returns the error for that, holds nothing, and is not granted later", func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b := e.peer(), e.peer()
				h := a.get(a.req("held"))
				free, held := []*driver.Request{b.req("x"), once(b.req("x")), b.shared("x")}, []*driver.Request{b.req("held"),
					b.shared("held")}
				heal := refuse()
				for _, r := range free {
					if !e.isRefused("Acquire of a free name", func(ctx context.Context) error {
						_, err := b.Acquire(ctx, r)
						return err
					}) {
						e.Errorf("granted while the store refused writes: %+v", r)
					}
				}
				for _, r := range append(held, once(b.req("held"))) {
					e.mustNotGrant(b, r)
				}
				heal()
				time.Sleep(quiet)
				if rec := a.inspect("x"); rec.Kind != driver.Unused {
					e.Errorf("Inspect = %+v; want unused: every request was refused", rec)
				}
				for _, r := range held { // a request that was answered, not refused, may be in the queue
					if err := b.Cancel(e.ctx, r.Name, r.ID); err != nil {
						e.Errorf("Cancel: %v", err)
					}
				}
				a.release(h)
				b.release(b.get(once(b.req("held"))))
				a.release(a.get(once(a.req("x"))))
			})
		}},
	{"R13", "refused cancel", "a cancel that the store refuses sends no push; a later repeat leaves nothing behind",
		func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b, c := e.peer(), e.peer(), e.peer()
				h := a.get(a.req("x"))
				first, second := b.joinQueue(b.req("x")), c.joinQueue(c.req("x"))
				heal := refuse()
				if !e.isRefused("Cancel of a grant", func(ctx context.Context) error { return a.Cancel(ctx, h.Name, h.ID) }, first,
					second) {
					return
				}
				if !e.isRefused("Cancel of a place", func(ctx context.Context) error { return b.Cancel(ctx, h.Name, first.r.ID) },
					second) {
					return
				}
				e.noPush(first, second)
				e.stillHeld(a, h, 2)
				heal()
				e.repeatRefused("Cancel", func(ctx context.Context) error { return b.Cancel(ctx, h.Name, first.r.ID) })
				e.repeatRefused("Cancel", func(ctx context.Context) error { return a.Cancel(ctx, h.Name, h.ID) })
				e.noPush(first)
				c.release(second.granted())
				a.release(a.get(once(a.req("x"))))
			})
		}},
	{"R13", "refused break", "a break that the store refuses ends no grant and sends no push", func(e *env) {
		e.refusals(func(refuse func() func()) {
			a, b, op := e.peer(), e.peer(), e.conn()
			h := a.get(a.req("x"))
			w := b.joinQueue(b.req("x"))
			heal := refuse()
			if !e.isRefused("Break", func(ctx context.Context) error { return op.Break(ctx, h.Name, h.Token) }, w) {
				return
			}
			e.noPush(w)
			e.stillHeld(a, h, 1)
			heal()
			e.repeatRefused("Renew", func(ctx context.Context) error { return renewAll(ctx, a, h) })
			if ch := a.renew(h); ch.State != 0 {
				e.Errorf("Renew of a grant whose break was refused = %+v", ch)
			}
			e.repeatRefused("Break", func(ctx context.Context) error { return op.Break(ctx, h.Name, h.Token) })
			b.release(w.granted())
		})
	}},
	{"R13", "refused readers", "readers behind a writer get no push of a release or downgrade that the store refuses",
		func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b, c := e.peer(), e.peer(), e.peer()
				h := a.get(a.req("x"))
				first, second := b.joinQueue(b.shared("x")), c.joinQueue(c.shared("x"))
				heal := refuse()
				if !e.isRefused("Downgrade", func(ctx context.Context) error { return a.Downgrade(ctx, h) }, first, second) {
					return
				}
				if !e.isRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) }, first, second) {
					return
				}
				e.noPush(first, second)
				e.stillHeld(a, h, 2)
				heal()
				e.repeatRefused("Downgrade", func(ctx context.Context) error { return a.Downgrade(ctx, h) })
				hb, hc := first.granted(), second.granted()
				writer := c.joinQueue(c.req("x"))
				b.release(hb)
				heal = refuse()
				if !e.isRefused("Release of a reader", func(ctx context.Context) error { return c.Release(ctx, hc, 0) }, writer) {
					return
				}
				e.noPush(writer)
				heal()
				e.repeatRefused("Release", func(ctx context.Context) error { return c.Release(ctx, hc, 0) })
				a.release(h)
				c.release(writer.granted())
			})
		}},
	{"R13", "refused adoption", "an adoption that the store refuses changes nothing", func(e *env) {
		e.refusals(func(refuse func() func()) {
			a, b := e.peer(), e.peer()
			h := a.get(a.req("x"))
			id := b.req("x").ID
			heal := refuse()
			if !e.isRefused("Adopt", func(ctx context.Context) error { return b.Adopt(ctx, h, id, "") }) {
				return
			}
			e.stillHeld(a, h, 0)
			heal()
			e.repeatRefused("Renew", func(ctx context.Context) error { return renewAll(ctx, a, h) })
			if ch := a.renew(h); ch.State != 0 {
				e.Errorf("Renew after a refused adoption = %+v", ch)
			}
			e.repeatRefused("Adopt", func(ctx context.Context) error { return b.Adopt(ctx, h, id, "") })
			b.release(driver.Hold{Name: h.Name, ID: id, Token: h.Token})
		})
	}},
	{"R13", "refused permits", "waiters for permits get no push of a release that the store refuses", func(e *env) {
		e.refusals(func(refuse func() func()) {
			a, b, c := e.peer(), e.peer(), e.peer()
			h := a.get(a.permits("s", 2, 2))
			first, second := b.joinQueue(b.permits("s", 1, 2)), c.joinQueue(c.permits("s", 1, 2))
			heal := refuse()
			if !e.isRefused("Reduce", func(ctx context.Context) error { return a.Reduce(ctx, h, 1) }, first, second) {
				return
			}
			if !e.isRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) }, first, second) {
				return
			}
			if !e.isRefused("SetLimit", func(ctx context.Context) error { return a.SetLimit(ctx, h.Name, 4) }, first, second) {
				return
			}
			unused := e.name("unused")
			if !e.isRefused("SetLimit", func(ctx context.Context) error { return a.SetLimit(ctx, unused, 4) }) {
				return
			}
			e.noPush(first, second)
			e.stillHeld(a, h, 2)
			heal()
			e.repeatRefused("Release", func(ctx context.Context) error { return a.Release(ctx, h, 0) })
			b.release(first.granted())
			c.release(second.granted())
			a.release(a.get(once(a.permits("s", 2, 2))))
			if rec := a.inspect("unused"); rec.Kind != driver.Unused {
				e.Errorf("Inspect = %+v; want unused: the limit was refused", rec)
			}
		})
	}},
	{"R13", "refused count", "a count of a latch that the store refuses opens it for nobody", func(e *env) {
		e.refusals(func(refuse func() func()) {
			a, b := e.peer(), e.peer()
			name := e.name("l")
			a.newLatch("l", 1)
			reply := b.awaitNotYet("l", "w-1")
			heal := refuse()
			if !e.isRefused("CountDown", func(ctx context.Context) error {
				_, err := a.CountDown(ctx, name, "c-1")
				return err
			}) {
				return
			}
			if !e.isRefused("SetCount", func(ctx context.Context) error {
				_, err := a.SetCount(ctx, e.name("m"), 1)
				return err
			}) {
				return
			}
			if !e.isRefused("RemoveLatch", func(ctx context.Context) error { return a.RemoveLatch(ctx, name) }) {
				return
			}
			select {
			case token := <-reply.Wake:
				if token != 0 {
					e.Fatalf("pushed %d by a refused count", token)
				}
			case <-time.After(quiet):
			}
			if rec := a.inspect("l"); rec.Kind != driver.Latch || rec.Count != 1 {
				e.Errorf("Inspect = %+v; want a latch with 1 left", rec)
			}
			heal()
			e.repeatRefused("CountDown", func(ctx context.Context) error { _, err := a.CountDown(ctx, name, "c-1"); return err })
			e.eventually(func(ctx context.Context) bool {
				reply, err := b.Await(ctx, name, "w-1")
				return err == nil && reply.Token != 0
			})
			if rec := a.inspect("m"); rec.Kind != driver.Unused {
				e.Errorf("Inspect = %+v; want unused: the latch was refused", rec)
			}
		})
	}},
	{
		"R13", "clients of a store that refuses",
		"a refused release is an error and frees the lock later; a waiter's grant is on record", func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b := e.client(nil), e.client(nil)
				l, kept := e.lock(a, "x"), e.lock(a, "kept")
				got := make(chan *holdfast.Lease, 1)
				e.spawn(func() {
					l, err := b.Mutex(e.name("x")).Lock(e.ctx)
					if err != nil {
						e.Errorf("Lock: %v", err)
					}
					got <- l
				})
				e.until("one waits", func() bool { return e.waiting(a, "x") == 1 })
				heal := refuse()
				err := l.Release()
				if err != nil && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, holdfast.ErrUnavailable) {
					e.Errorf("Release while the store refused writes: %v; want ErrRefused or ErrUnavailable", err)
				}
				if err != nil {
					select {
					case next := <-got:
						e.Fatalf("granted while the store refused writes: %+v", next)
					case <-time.After(quiet):
					}
				}
				heal()
				var next *holdfast.Lease
				select {
				case next = <-got:
				case <-time.After(patience):
					e.Fatal("a lock whose release was refused stays taken")
				}
				if next == nil {
					return
				}
				rec, err := a.Inspect(e.ctx, e.name("x"))
				if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != next.Token() {
					e.Errorf("Inspect = %+v, %v; want token %d", rec, err, next.Token())
				}
				if err := errors.Join(next.Release(), kept.Err(), kept.Release()); err != nil {
					e.Error(err)
				}
				e.until("the name is free", func() bool { return e.free(a, "x") })
			})
		}},
	{
		"R13", "expiry while refused",
		"a lease that expires while the store refuses writes leaves the lock to nobody until the next grant is on record",
		func(e *env) {
			e.refusals(func(refuse func() func()) {
				a, b, c := e.shortPeer(), e.peer(), e.peer()
				h := a.get(a.req("x"))
				first, second := &waiter{p: b, r: b.req("x")}, &waiter{p: c, r: c.req("x")}
				for _, w := range []*waiter{first, second} { // on a slow machine the lease has expired by then
					w.reply = w.p.ask(w.r)
				}
				a.Kill()
				heal := refuse()
				for end := time.Now().Add(e.h.TTL + e.h.TTL/2); time.Now().Before(end); time.Sleep(e.h.TTL / 10) {
					for _, w := range []*waiter{first, second} {
						ctx, cancel := context.WithTimeout(e.ctx, patience)
						changes, err := w.p.Renew(ctx, []driver.Hold{place(w.r)})
						cancel()
						if err == nil && len(changes) > 0 && changes[0].State == driver.Granted {
							e.onRecord(w.r, changes[0].Token)
						}
						w.readPush()
					}
				}
				heal()
				first.askAgain, second.askAgain = true, true // their places may have expired
				// Whichever of them is first by now, the other follows.
				got := make(chan driver.Hold, 2)
				var both sync.WaitGroup
				for _, w := range []*waiter{first, second} {
					both.Go(func() {
						hold := w.granted()
						got <- hold
						w.p.release(hold)
					})
				}
				both.Wait()
				close(got)
				for hold := range got {
					if hold.Token <= h.Token {
						e.Errorf("token %d after %d", hold.Token, h.Token)
					}
				}
			})
		}},
}

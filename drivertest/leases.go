package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// shorts is how many times longer than a short lease the TTL is, so that a fortieth of the TTL is short,
// too: a store may keep a lease for so much longer.
const shorts = 5

// leases are the checks of leases that are shorter than the TTL. Their sessions live on.
var leases = []check{
	{"R17", "a short lease", "a grant with a Lease lasts that long, however it was granted, and no longer", func(e *env) {
		e.useExpiry()
		a, b := e.peerFor(shorts*e.h.TTL), e.peer()
		for _, r := range []*driver.Request{a.req("x"), a.shared("s"), a.req("pushed")} {
			r.Lease = e.h.TTL
			var first driver.Hold
			if r.Name == e.name("pushed") {
				first = b.get(b.req("pushed"))
			}
			start := time.Now()
			reply := a.ask(r)
			if first.Token != 0 {
				b.release(first)
				e.onRecord(r, a.waitPush(r, &reply, patience))
			}
			if reply.Token == 0 && first.Token == 0 {
				e.Fatalf("%q: not granted", r.Name)
			}
			next := b.req(r.Name[len(e.prefix):])
			if b.waitGrant(next, b.ask(next), e.h.TTL+e.slack()) == 0 {
				e.Errorf("%q: still held %v after it was granted for %v", r.Name, time.Since(start), e.h.TTL)
			}
			if d := time.Since(start); d < e.h.TTL {
				e.Errorf("%q: granted to another one %v after it was asked for; its lease is %v", r.Name, d, e.h.TTL)
			}
		}
	}},
	{"R17", "a short place", "a place with a Lease expires after it", func(e *env) {
		e.useExpiry()
		a, b, c := e.peer(), e.peerFor(shorts*e.h.TTL), e.peer()
		h := a.get(a.req("x"))
		r := b.req("x")
		r.Lease = e.h.TTL
		b.refused(r)
		next := c.req("x")
		reply := c.refused(next)
		e.sleepPastTTL()
		a.release(h)
		if c.waitGrant(next, reply, patience) == 0 {
			e.Error("the waiter behind the place that has expired was not served")
		}
		if ch := b.renew(place(r)); ch.State != driver.Gone {
			e.Errorf("Renew of the expired place = %+v; want Gone", ch)
		}
	}},
	{"R17", "leases only grow", "a renewal with a Lease makes no lease and no place end earlier", func(e *env) {
		e.useExpiry()
		a, b := e.peer(), e.peer()
		x, s := a.get(a.req("x")), a.get(a.shared("s"))
		r := b.req("x")
		reply := b.refused(r)
		late := place(r)
		for _, h := range []*driver.Hold{&x, &s, &late} {
			h.Lease = e.h.TTL / 2
		}
		for _, h := range []driver.Hold{x, s} {
			if ch := a.renew(h); ch.State != 0 {
				e.Errorf("Renew(%+v) = %+v", h, ch)
			}
		}
		if ch := b.renew(late); ch.State != driver.Waiting {
			e.Errorf("Renew(%+v) = %+v; want Waiting", late, ch)
		}
		e.sleepPastTTL()
		for _, h := range []driver.Hold{x, s} {
			h.Lease = 0
			if ch := a.renew(h); ch.State != 0 {
				e.Errorf("after a short renewal of a long lease, Renew(%+v) = %+v", h, ch)
			}
		}
		x.Lease = 0
		a.release(x)
		if b.waitGrant(r, reply, patience) == 0 {
			e.Error("the place ended with its short renewal")
		}
	}},
	{"R17", "released after a short renewal", "Release says that a grant has ended with its short renewal",
		func(e *env) {
			e.useExpiry()
			e.retrySlow(func() (slow bool) {
				a := e.shortPeer()
				life := proof{e, a, time.Now()}
				known := a.get(a.req("x")) // a store may be quicker with names that were free
				if life.prove("Release", func() bool { return a.tryRelease(known) }) {
					return true
				}
				h := a.get(a.req("x"))
				time.Sleep(e.h.TTL * 2 / 3)
				h.Lease = e.h.TTL / 2
				if ch := a.renew(h); ch.State != 0 {
					return true
				}
				time.Sleep(e.h.TTL/2 + quiet)
				if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrGone) {
					e.Errorf("Release of the ended grant: %v; want ErrGone", err)
				}
				return false
			})
		}},
	{
		"R17", "a short lease extended",
		"a renewal makes a short lease longer, and a repeated request does not make it short again", func(e *env) {
			e.useExpiry()
			a, b := e.peer(), e.peer()
			e.retrySlow(func() (slow bool) {
				r := a.req("x")
				r.Lease = e.h.TTL
				life := proof{e, a, time.Now()}
				h := a.get(r)
				if life.prove("Renew", func() bool { return a.tryRenew(h) }) { // to a full TTL
					return true
				}
				if reply := a.ask(r); reply.Token != h.Token {
					e.Fatalf("the repeated request: %+v; want token %d", reply, h.Token)
				}
				e.sleepPastTTL()
				b.refused(once(b.req("x")))
				if ch := a.renew(h); ch.State != 0 {
					e.Errorf("Renew = %+v", ch)
				}
				a.release(h)
				return false
			})
		}},
}

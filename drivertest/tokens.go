package drivertest

import (
	"github.com/holdfast-lock/holdfast/driver"
)

var tokens = []check{
	{
		"R3", "tokens grow",
		"every grant of a name has a larger token than those before: across release, expiry, break, downgrade and kinds",
		func(e *env) {
			e.useExpiry()
			a, b, dead := e.peer(), e.peer(), e.shortPeer()
			last := uint64(0)
			see := func(how string, token uint64) {
				e.Helper()
				if token <= last {
					e.Fatalf("%s: token %d after %d", how, token, last)
				}
				last = token
			}
			for range 20 {
				h := a.get(a.req("x"))
				see("release", h.Token)
				a.release(h)
			}
			h := dead.get(dead.req("x"))
			see("before expiry", h.Token)
			r := b.req("x")
			h = driver.Hold{Name: r.Name, ID: r.ID, Token: b.waitGrant(r, b.ask(r), e.h.TTL+patience)}
			see("after expiry", h.Token)
			if err := a.Break(e.ctx, h.Name, h.Token); err != nil {
				e.Fatalf("Break: %v", err)
			}
			h = a.get(a.req("x"))
			see("after break", h.Token)
			if err := a.Downgrade(e.ctx, h); err != nil {
				e.Fatalf("Downgrade: %v", err)
			}
			h2 := b.get(b.shared("x"))
			see("shared beside a downgraded writer", h2.Token)
			h3 := b.get(b.shared("x"))
			see("shared beside shared", h3.Token)
			a.release(h)
			b.release(h2)
			b.release(h3)
			if !e.locksOnly() {
				h = a.get(a.permits("x", 1, 2))
				see("permits", h.Token)
				h2 = a.get(a.permits("x", 1, 2))
				see("more permits", h2.Token)
				a.release(h)
				a.release(h2)
				a.limitEnds("x")
			}
			h = b.get(b.req("x"))
			see("exclusive again", h.Token)
		}},
	{"R3", "tokens of a hand-over", "tokens grow along a queue", func(e *env) {
		a := e.peer()
		h := a.get(a.req("x"))
		var reqs []*driver.Request
		var replies []driver.Reply
		for range 20 {
			r := a.req("x")
			reqs, replies = append(reqs, r), append(replies, a.refused(r))
		}
		for i, r := range reqs {
			a.release(h)
			token := a.waitPush(r, &replies[i], patience)
			if token <= h.Token {
				e.Fatalf("token %d after %d", token, h.Token)
			}
			h = driver.Hold{Name: r.Name, ID: r.ID, Token: token}
		}
	}},
}

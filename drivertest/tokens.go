package drivertest

import (
	"errors"

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
	{"R21", "blocks of tokens",
		"a grant that takes a block of tokens has one that is larger than all before it and smaller than all after it",
		func(e *env) {
			a, b := e.peer(), e.peer()
			if !a.Kinds().Blocks {
				r := a.req("x")
				r.Tokens = 2
				if _, err := a.Acquire(e.ctx, r); !errors.Is(err, driver.ErrInvalid) {
					e.Fatalf("a block of 2 from a store without blocks: %v; want ErrInvalid", err)
				}
				return
			}
			last := uint64(0)
			see := func(how string, r *driver.Request, token uint64) driver.Hold {
				e.Helper()
				if token < last+uint64(r.Block()) {
					e.Fatalf("%s: token %d after %d, for a grant that takes %d", how, token, last, r.Block())
				}
				last = token
				return driver.Hold{Name: r.Name, ID: r.ID, Token: token}
			}
			block := func(p *peer, n int) *driver.Request {
				r := p.req("x")
				r.Tokens = n
				return r
			}
			for _, n := range []int{driver.MaxTokens, 0, 1, driver.MaxTokens, 7, driver.MaxTokens, driver.MaxTokens, 0} {
				r := block(a, n)
				h := see("when it is free", r, a.get(r).Token)
				if again := a.ask(r); again.Token != h.Token {
					e.Fatalf("token %d; asked again: %d", h.Token, again.Token)
				}
				if ch := a.renew(h); ch.State != 0 {
					e.Fatalf("renewed: %+v", ch)
				}
				a.release(h)
			}
			r := block(b, 300)
			h := see("before the queue", r, b.get(r).Token)
			var reqs []*driver.Request
			var replies []driver.Reply
			for i := range 24 {
				r := block(a, []int{driver.MaxTokens, 0, 40}[i%3])
				if i%8 == 7 {
					r = a.shared("x")
				}
				reqs, replies = append(reqs, r), append(replies, a.refused(r))
			}
			rec, err := a.Inspect(e.ctx, h.Name)
			if err != nil {
				e.Fatalf("Inspect: %v", err)
			}
			for _, w := range append(rec.Holders, rec.Waiters...) {
				if w.N != 1 {
					e.Errorf("%s has N %d; want 1", w.ID, w.N)
				}
			}
			for i, r := range reqs {
				b := b // the first releases
				if i > 0 {
					b = a
				}
				if i%5 == 4 {
					if err := b.Break(e.ctx, h.Name, h.Token); err != nil {
						e.Fatalf("Break: %v", err)
					}
				} else {
					b.release(h)
				}
				h = see("in the queue", r, a.waitPush(r, &replies[i], patience))
			}
			a.release(h)
			for _, bad := range []*driver.Request{
				block(a, driver.MaxTokens+1), block(a, -1), a.shared("x"), a.permits("p", 1, 2),
			} {
				if bad.Tokens == 0 {
					bad.Tokens = 2
				}
				if _, err := a.Acquire(e.ctx, bad); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%d tokens for mode %d: %v; want ErrInvalid", bad.Tokens, bad.Mode, err)
				}
			}
		}},
}

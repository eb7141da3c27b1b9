package drivertest

import (
	"context"
	"errors"
	"slices"

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
		"a grant that takes a block of tokens, or one in its place, has one that is larger than all before it and smaller than all after it",
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
				if n := r.Granted(token, a.Kinds()); token < last+uint64(n) {
					e.Fatalf("%s: token %d after %d, for a grant that takes %d", how, token, last, n)
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
			r := a.req("new")
			r.Tokens = driver.MaxTokens // the name has had no token that could be ahead of a clock
			h := a.get(r)
			if n := r.Granted(h.Token, a.Kinds()); n != r.Tokens {
				e.Errorf("the first grant of a name has %d tokens; want %d", n, r.Tokens)
			}
			a.release(h)
			r = block(b, 300)
			h = see("before the queue", r, b.get(r).Token)
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
	{"R21", "blocks and lost messages",
		"a repeated answer and a renewal tell the token that is on record, so the number of tokens, too",
		func(e *env) {
			a, b := e.peer(), e.peer()
			if !a.Kinds().Blocks {
				return
			}
			last := uint64(0)
			see := func(how string, r *driver.Request, h driver.Hold) {
				e.Helper()
				recorded := e.holderToken(r)
				n := r.Granted(h.Token, a.Kinds())
				if n < 1 || n > r.Tokens || h.Token < last+uint64(n) {
					e.Fatalf("%s: %d tokens up to %d, after %d", how, n, h.Token, last)
				}
				// Without Bounded the token may have been raised: the block is still larger than all before.
				if recorded != h.Token && (a.Kinds().Bounded || recorded < h.Token) {
					e.Fatalf("%s: token %d, and %d on record", how, h.Token, recorded)
				}
				last = recorded
			}
			block := func(p *peer) *driver.Request {
				r := p.req("x")
				r.Tokens = driver.MaxTokens
				return r
			}
			for range 30 { // faster than a store may give blocks whose tokens are times
				r := block(a)
				h := a.get(r)
				see("at once", r, h)
				again := driver.Hold{Name: r.Name, ID: r.ID, Token: a.ask(r).Token}
				if again != h {
					e.Fatalf("asked again: %+v; want %+v", again, h)
				}
				w := b.joinQueue(block(b))
				a.release(h)
				var ch driver.Change
				e.eventually(func(context.Context) bool { // the servers of a quorum need not agree at once
					ch = b.renew(place(w.r))
					return ch.State == driver.Granted
				})
				h = driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: ch.Token}
				see("after a lost push", w.r, h)
				b.release(h)
			}
			r := block(a)
			heal := a.DropReplies()
			e.answerLost(func(ctx context.Context) error { _, err := a.Acquire(ctx, r); return err })
			heal()
			h := a.retryGet(r)
			see("after a lost answer", r, h)
			adopted := b.adopt(h)
			if adopted.Token != h.Token {
				e.Fatalf("token %d after the adoption of %d", adopted.Token, h.Token)
			}
			b.release(adopted)
		}},
}

// holderToken returns the token that the store has on record for r's grant.
func (e *env) holderToken(r *driver.Request) uint64 {
	e.Helper()
	rec, err := e.healthy().Inspect(e.ctx, r.Name)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	i := slices.IndexFunc(rec.Holders, func(h driver.Holder) bool { return h.ID == r.ID && !h.Kept })
	if i < 0 {
		e.Fatalf("%q has not the grant: %+v", r.ID, rec)
	}
	return rec.Holders[i].Token
}

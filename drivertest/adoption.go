package drivertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// kind is a request whose grant can be adopted, and a request that does not fit next to it.
type kind struct {
	name        string
	ask, beside func(p *peer, name string) *driver.Request
}

var kinds = []kind{
	{"x", (*peer).req, (*peer).shared},
	{"r", (*peer).shared, (*peer).req},
	{"s", func(p *peer, name string) *driver.Request { return p.permits(name, 2, 3) },
		func(p *peer, name string) *driver.Request { return p.permits(name, 2, 3) }},
}

// kinds returns the kinds that the store keeps.
func (e *env) kinds() []kind {
	if e.locksOnly() {
		return kinds[:2]
	}
	return kinds
}

// adopter is the Info of the adopting session.
var adopter = driver.Info{Host: "a", Note: "adopter"}.String()

var adoption = []check{
	{
		"R4", "adopt",
		"a grant moves to another session, is held at every moment, and survives the death of the first session",
		func(e *env) {
			e.useExpiry()
			b, c := e.peer(), e.peer()
			e.retrySlow(func() (slow bool) {
				a := e.shortPeer()
				var held []driver.Hold
				for _, k := range e.kinds() {
					r := k.ask(a, k.name)
					life := proof{e, a, time.Now()}
					h := a.get(r)
					adopted := driver.Hold{Name: h.Name, ID: b.req("").ID, Token: h.Token}
					if life.prove("Adopt", func() bool { return b.tryAdopt(h, adopted.ID) == nil }) {
						return true
					}
					held = append(held, adopted)
				}
				a.Kill()
				for range 2 {
					for i, k := range e.kinds() {
						b.mustRenew(held[i])
						c.refused(once(k.beside(c, k.name)))
					}
					e.sleepPastTTL()
				}
				for i, k := range e.kinds() {
					b.mustRenew(held[i])
					b.release(held[i])
					c.get(once(k.beside(c, k.name)))
				}
				return false
			})
		}},
	{
		"R4", "adopted from a live session",
		"the old session can neither end nor renew an adopted grant under the old ID; its own end does not end it either",
		func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			for _, k := range e.kinds() {
				h, quiet := a.get(k.ask(a, k.name)), a.get(k.ask(a, k.name+"-quiet"))
				held, left := b.adopt(h), b.adopt(quiet)
				if ch := a.renew(h); ch.State != driver.Gone {
					e.Errorf("%s: Renew under the old ID = %+v; want Gone", k.name, ch)
				}
				if err := a.Release(e.ctx, h, 0); !driver.IsOver(err) {
					e.Errorf("%s: Release under the old ID: %v; want ErrGone", k.name, err)
				}
				if err := a.Downgrade(e.ctx, h); !driver.IsOver(err) {
					e.Errorf("%s: Downgrade under the old ID: %v; want ErrGone", k.name, err)
				}
				if err := a.Cancel(e.ctx, h.Name, h.ID); err != nil {
					e.Errorf("%s: Cancel under the old ID: %v", k.name, err)
				}
				b.mustRenew(held)
				b.mustRenew(left)
				if rec := b.inspect(k.name); len(rec.Holders) != 1 || rec.Holders[0].ID != held.ID ||
					rec.Holders[0].Token != h.Token || rec.Holders[0].Info != adopter {
					e.Errorf("%s: holders %+v; want %s with token %d", k.name, rec.Holders, held.ID, h.Token)
				}
			}
			if err := a.Close(e.ctx); err != nil { // a does not know yet that the quiet ones are adopted
				e.Fatalf("Close: %v", err)
			}
			for _, k := range e.kinds() {
				for _, name := range []string{k.name, k.name + "-quiet"} {
					c.refused(once(k.beside(c, name)))
					holders := c.inspect(name).Holders
					if len(holders) != 1 {
						e.Fatalf("%s: %d holders after the old session's end; want the adopted grant", name, len(holders))
					}
					held := driver.Hold{Name: e.name(name), ID: holders[0].ID, Token: holders[0].Token}
					b.mustRenew(held)
					b.release(held)
					c.get(once(k.beside(c, name)))
				}
			}
		}},
	{"R5", "adopt again", "a repeated adoption changes nothing; under an ID that belongs to another request it is refused",
		func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			var taken, adopted []driver.Hold
			for i, k := range e.kinds() {
				taken = append(taken, a.get(k.ask(a, k.name)))
				adopted = append(adopted, b.adopt(taken[i]))
			}
			for i, k := range e.kinds() {
				h, held := taken[i], adopted[i]
				if err := b.Adopt(e.ctx, h, held.ID, adopter); err != nil {
					e.Fatalf("%s: repeated Adopt: %v", k.name, err)
				}
				b.mustRenew(held)
				c.refused(once(k.beside(c, k.name)))
				waits := k.beside(c, k.name)
				reply := c.refused(waits)
				for what, id := range map[string]string{"no id": "", "49 bytes": strings.Repeat("x", 49), "a space": "a b",
					"an id in line": waits.ID} {
					if err := c.Adopt(e.ctx, held, id, adopter); !errors.Is(err, driver.ErrInvalid) {
						e.Errorf("%s: Adopt with %s: %v; want ErrInvalid", k.name, what, err)
					}
				}
				b.mustRenew(held)
				b.release(held)
				if c.waitPush(waits, &reply, patience) == 0 {
					e.Fatalf("%s: the next waiter was not served", k.name)
				}
				if err := b.Adopt(e.ctx, h, held.ID, adopter); !errors.Is(err, driver.ErrTaken) {
					e.Errorf("%s: Adopt of a grant that has ended: %v; want ErrTaken", k.name, err)
				}
			}
		}},
	{"R5", "adopt renews", "a repeated adoption renews the lease", func(e *env) {
		e.useExpiry()
		a := e.peer()
		for _, k := range e.kinds() {
			e.retrySlow(func() (slow bool) {
				b := e.shortPeer()
				h := a.get(k.ask(a, k.name))
				life := proof{e, b, time.Now()}
				held := b.adopt(h)
				for range 3 {
					time.Sleep(e.h.TTL / 2)
					if life.prove("repeated Adopt", func() bool { return b.tryAdopt(h, held.ID) == nil }) {
						return true
					}
				}
				return life.prove("Renew", func() bool { return b.tryRenew(held) })
			})
		}
	}},
	{
		"R5", "answer to adopt lost",
		"an adoption that was not answered is confirmed by a repeat, or ends with the adopter's session", func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			b.adopt(a.get(a.req("known"))) // so that both already know the name
			h, left := a.get(a.req("x")), a.get(a.req("left"))
			held := driver.Hold{Name: h.Name, ID: b.req("").ID, Token: h.Token}
			heal := b.DropReplies()
			e.answerLost(func(ctx context.Context) error { return b.Adopt(ctx, h, held.ID, adopter) })
			heal()
			e.eventually(func(ctx context.Context) bool { return b.Adopt(ctx, h, held.ID, adopter) == nil })
			b.mustRenew(held)
			heal = b.DropReplies()
			e.answerLost(func(ctx context.Context) error { return b.Adopt(ctx, left, b.req("").ID, adopter) })
			heal()
			e.eventually(func(ctx context.Context) bool { return renewAll(ctx, b, held) == nil })
			if err := b.Close(e.ctx); err != nil {
				e.Fatalf("Close: %v", err)
			}
			c.get(once(c.req("x")))
			if ch := a.renew(left); ch.State == 0 { // a store that reads first has not done it yet
				a.release(left)
			}
			c.get(once(c.req("left")))
		}},
}

// adopt adopts h under an ID of p's own.
func (p *peer) adopt(h driver.Hold) driver.Hold {
	p.e.Helper()
	held := driver.Hold{Name: h.Name, ID: p.req("").ID, Token: h.Token}
	if err := p.Adopt(p.e.ctx, h, held.ID, adopter); err != nil {
		p.e.Fatalf("Adopt(%q): %v", h.Name, err)
	}
	return held
}

// tryAdopt is an Adopt that is repeated until it is answered.
func (p *peer) tryAdopt(h driver.Hold, id string) error {
	return p.e.answered(func() error { return p.Adopt(p.e.ctx, h, id, adopter) })
}

// mustRenew renews h, which must still be granted.
func (p *peer) mustRenew(h driver.Hold) {
	p.e.Helper()
	if ch := p.renew(h); ch.State != 0 {
		p.e.Fatalf("Renew(%q) under the new ID = %+v", h.Name, ch)
	}
}

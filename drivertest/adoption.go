package drivertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// kind is a request whose grant can be adopted, and what does not fit beside it.
type kind struct {
	name        string
	ask, beside func(p *party, name string) *driver.Request
}

var kinds = []kind{
	{"x", (*party).req, (*party).shared},
	{"r", (*party).shared, (*party).req},
	{"s", func(p *party, name string) *driver.Request { return p.permits(name, 2, 3) },
		func(p *party, name string) *driver.Request { return p.permits(name, 2, 3) }},
}

// kinds are those that the store keeps.
func (e *env) kinds() []kind {
	if e.h.LocksOnly {
		return kinds[:2]
	}
	return kinds
}

// adopter is what the adopting session says of itself.
var adopter = driver.Info{Host: "a", Note: "adopter"}.String()

var adoption = []check{
	{"R4", "adopt", "a grant goes to another session without a moment in which nobody holds it, and outlives the death of the first", func(e *env) {
		e.expires()
		b, c := e.party(), e.party()
		e.tries(func() (slow bool) {
			a := e.brief()
			var held []driver.Hold
			for _, k := range e.kinds() {
				r := k.ask(a, k.name)
				life := proof{e, time.Now()}
				h := a.get(r)
				adopted := driver.Hold{Name: h.Name, ID: b.req("").ID, Token: h.Token}
				if life.proves("Adopt", func() bool { return b.Adopt(e.ctx, h, adopted.ID, adopter) == nil }) {
					return true
				}
				held = append(held, adopted)
			}
			a.Kill()
			for range 2 {
				for i, k := range e.kinds() {
					b.keeps(held[i])
					c.refused(once(k.beside(c, k.name)))
				}
				e.runsOut()
			}
			for i, k := range e.kinds() {
				b.keeps(held[i])
				b.release(held[i])
				c.get(once(k.beside(c, k.name)))
			}
			return false
		})
	}},
	{"R4", "adopted from the living", "nothing that the old session does with the old id ends or renews an adopted grant, nor does its end", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		for _, k := range e.kinds() {
			h, quiet := a.get(k.ask(a, k.name)), a.get(k.ask(a, k.name+"-quiet"))
			held, left := b.adopt(h), b.adopt(quiet)
			if ch := a.renew(h); ch.State != driver.Gone {
				e.Errorf("%s: Renew under the old id = %+v; want Gone", k.name, ch)
			}
			if err := a.Release(e.ctx, h, 0); !over(err) {
				e.Errorf("%s: Release under the old id: %v; want ErrGone", k.name, err)
			}
			if err := a.Downgrade(e.ctx, h); !over(err) {
				e.Errorf("%s: Downgrade under the old id: %v; want ErrGone", k.name, err)
			}
			if err := a.Cancel(e.ctx, h.Name, h.ID); err != nil {
				e.Errorf("%s: Cancel under the old id: %v", k.name, err)
			}
			b.keeps(held)
			b.keeps(left)
			if rec := b.inspect(k.name); len(rec.Holders) != 1 || rec.Holders[0].ID != held.ID || rec.Holders[0].Token != h.Token || rec.Holders[0].Info != adopter {
				e.Errorf("%s: holders %+v; want %s with token %d", k.name, rec.Holders, held.ID, h.Token)
			}
		}
		if err := a.Close(e.ctx); err != nil { // it has not heard that the quiet ones are adopted
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
				b.keeps(held)
				b.release(held)
				c.get(once(k.beside(c, name)))
			}
		}
	}},
	{"R5", "adopt again", "a repeated adoption changes nothing; under an id that means something else it is refused", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
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
			b.keeps(held)
			c.refused(once(k.beside(c, k.name)))
			waits := k.beside(c, k.name)
			reply := c.refused(waits)
			for what, id := range map[string]string{"no id": "", "49 bytes": strings.Repeat("x", 49), "a space": "a b", "an id in line": waits.ID} {
				if err := c.Adopt(e.ctx, held, id, adopter); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%s: Adopt with %s: %v; want ErrInvalid", k.name, what, err)
				}
			}
			b.keeps(held)
			b.release(held)
			if c.woken(waits, &reply, patience) == 0 {
				e.Fatalf("%s: the next in line was not served", k.name)
			}
			if err := b.Adopt(e.ctx, h, held.ID, adopter); !errors.Is(err, driver.ErrTaken) {
				e.Errorf("%s: Adopt of a grant that is over: %v; want ErrTaken", k.name, err)
			}
		}
	}},
	{"R5", "adopt renews", "a repeated adoption renews the lease", func(e *env) {
		e.expires()
		a, b := e.party(), e.brief()
		for _, k := range e.kinds() {
			e.tries(func() (slow bool) {
				h := a.get(k.ask(a, k.name))
				life := proof{e, time.Now()}
				held := b.adopt(h)
				for range 3 {
					time.Sleep(e.h.TTL / 2)
					if life.proves("repeated Adopt", func() bool { return b.Adopt(e.ctx, h, held.ID, adopter) == nil }) {
						return true
					}
				}
				return life.proves("Renew", func() bool { return b.renew(held).State == 0 })
			})
		}
	}},
	{"R5", "answer to adopt lost", "an adoption that was not answered is found by adopting again, or ends with the adopter's session", func(e *env) {
		a, b, c := e.party(), e.party(), e.party()
		b.adopt(a.get(a.req("known"))) // so that nothing has to be learnt on the way
		h, left := a.get(a.req("x")), a.get(a.req("left"))
		held := driver.Hold{Name: h.Name, ID: b.req("").ID, Token: h.Token}
		heal := b.DropReplies()
		e.fails(func(ctx context.Context) error { return b.Adopt(ctx, h, held.ID, adopter) })
		heal()
		e.eventually(func(ctx context.Context) bool { return b.Adopt(ctx, h, held.ID, adopter) == nil })
		b.keeps(held)
		heal = b.DropReplies()
		e.fails(func(ctx context.Context) error { return b.Adopt(ctx, left, b.req("").ID, adopter) })
		heal()
		e.eventually(func(ctx context.Context) bool { return renewAll(ctx, b, held) == nil })
		if err := b.Close(e.ctx); err != nil {
			e.Fatalf("Close: %v", err)
		}
		c.get(once(c.req("x")))
		if ch := a.renew(left); ch.State == 0 { // in a store that has to look first, it has not come to that
			a.release(left)
		}
		c.get(once(c.req("left")))
	}},
}

// adopt takes h over under an id of p's own.
func (p *party) adopt(h driver.Hold) driver.Hold {
	p.e.Helper()
	held := driver.Hold{Name: h.Name, ID: p.req("").ID, Token: h.Token}
	if err := p.Adopt(p.e.ctx, h, held.ID, adopter); err != nil {
		p.e.Fatalf("Adopt(%q): %v", h.Name, err)
	}
	return held
}

// keeps renews h, which must stand.
func (p *party) keeps(h driver.Hold) {
	p.e.Helper()
	if ch := p.renew(h); ch.State != 0 {
		p.e.Fatalf("Renew(%q) under the new id = %+v", h.Name, ch)
	}
}

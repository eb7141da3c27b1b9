package drivertest

import (
	"errors"

	"github.com/holdfast-lock/holdfast/driver"
)

var operators = []check{
	{"R10", "break", "an operator's break ends the grant, fences it, and grants the lock to the next waiter",
		func(e *env) {
			a, b, op := e.peer(), e.peer(), e.conn()
			h := a.get(a.req("x"))
			r := b.req("x")
			reply := b.refused(r)
			if err := op.Break(e.ctx, h.Name, h.Token+1); !errors.Is(err, driver.ErrGone) {
				e.Errorf("Break with a wrong token: %v; want ErrGone", err)
			}
			if err := op.Break(e.ctx, h.Name, h.Token); err != nil {
				e.Fatalf("Break: %v", err)
			}
			token := b.waitPush(r, &reply, patience)
			if token <= h.Token {
				e.Fatalf("after a break of token %d the next waiter got %d", h.Token, token)
			}
			if ch := a.renew(h); ch.State != driver.Gone {
				e.Errorf("the old holder's Renew = %+v; want Gone", ch)
			}
			if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrTaken) {
				e.Errorf("the old holder's Release: %v; want ErrTaken", err)
			}
			if err := op.Break(e.ctx, h.Name, h.Token); !errors.Is(err, driver.ErrGone) {
				e.Errorf("second Break: %v; want ErrGone", err)
			}
			if ch := b.renew(driver.Hold{Name: r.Name, ID: r.ID, Token: token}); ch.State != 0 {
				e.Errorf("the new holder's Renew = %+v", ch)
			}
		}},
	{"R10", "break one of many", "a break ends one reader's or permit's grant and no other", func(e *env) {
		a, b := e.peer(), e.peer()
		h1, h2 := a.get(a.shared("r")), b.get(b.shared("r"))
		if err := a.Break(e.ctx, h1.Name, h1.Token); err != nil {
			e.Fatalf("Break: %v", err)
		}
		if ch := a.renew(h1); ch.State != driver.Gone {
			e.Errorf("the broken reader's Renew = %+v; want Gone", ch)
		}
		if ch := b.renew(h2); ch.State != 0 {
			e.Errorf("the other reader's Renew = %+v", ch)
		}
		if e.locksOnly() {
			return
		}
		p1, p2 := a.get(a.permits("s", 2, 3)), b.get(b.permits("s", 1, 3))
		if err := a.Break(e.ctx, p1.Name, p1.Token); err != nil {
			e.Fatalf("Break: %v", err)
		}
		a.get(a.permits("s", 2, 3))
		a.refused(once(a.permits("s", 1, 3)))
		if ch := b.renew(p2); ch.State != 0 {
			e.Errorf("the other permit's Renew = %+v", ch)
		}
	}},
	{"R1", "unused", "a name that nobody uses is unused, and not listed", func(e *env) {
		a := e.peer()
		if rec := a.inspect("never"); rec.Kind != driver.Unused || len(rec.Holders) != 0 || rec.Waiting != 0 {
			e.Errorf("Inspect = %+v; want unused", rec)
		}
		a.release(a.get(a.req("once")))
		if list, err := a.List(e.ctx, e.prefix, "", 10); err != nil || len(list) != 0 {
			e.Errorf("List = %+v, %v; want nothing", list, err)
		}
	}},
}

package drivertest

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

// limits are the checks of limits that are set.
var limits = []check{
	{
		"R19", "a limit that stays",
		"a limit that was set stays while nobody uses the name, and refuses other limits and kinds until it is removed",
		func(e *env) {
			a, b := e.peer(), e.peer()
			s := e.name("s")
			refused := func(r *driver.Request) {
				e.Helper()
				for _, wait := range []bool{false, true} {
					r.Wait = wait
					if _, err := b.Acquire(e.ctx, r); !errors.Is(err, driver.ErrKind) {
						e.Errorf("Acquire of mode %d with limit %d: %v; want ErrKind", r.Mode, r.Limit, err)
					}
				}
			}
			a.setLimit("s", 2)
			e.hasLimit(b, "s", 2, true)
			if list, err := a.List(e.ctx, e.prefix, "", 10); err != nil || len(list) != 1 || list[0].Name != s ||
				list[0].Limit != 2 || !list[0].Set {
				e.Errorf("List = %+v, %v; want the semaphore", list, err)
			}
			refused(b.req("s")) // before there has been any other request
			refused(b.shared("s"))
			if _, err := b.SetCount(e.ctx, s, 1); !errors.Is(err, driver.ErrKind) {
				e.Errorf("SetCount: %v; want ErrKind", err)
			}
			refused(b.permits("s", 1, 3))
			h := b.get(b.permits("s", 2, 2))
			b.refused(once(b.permits("s", 1, 2)))
			b.release(h)
			e.hasLimit(a, "s", 2, true)
			a.setLimit("s", 3)
			e.hasLimit(a, "s", 3, true)
			refused(b.permits("s", 1, 2))
			next := b.get(b.permits("s", 3, 3))
			b.release(next)
			a.setLimit("s", 0)
			if rec := b.inspect("s"); rec.Kind != driver.Unused {
				e.Errorf("Inspect = %+v after the limit was removed; want unused", rec)
			}
			if err := a.SetLimit(e.ctx, s, 0); !errors.Is(err, driver.ErrGone) {
				e.Errorf("removal of no limit: %v; want ErrGone", err)
			}
			x := b.get(b.req("s"))
			if next.Token <= h.Token || x.Token <= next.Token {
				e.Errorf("tokens %d, %d, %d; want larger ones", h.Token, next.Token, x.Token)
			}
			if err := a.SetLimit(e.ctx, s, 2); !errors.Is(err, driver.ErrKind) {
				e.Errorf("SetLimit of a lock: %v; want ErrKind", err)
			}
			for _, n := range []int{-1, driver.MaxLimit + 1} {
				if err := a.SetLimit(e.ctx, e.name("t"), n); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("SetLimit to %d: %v; want ErrInvalid", n, err)
				}
			}
		}},
	{
		"R19", "the limit that is set",
		"a request with limit 0 uses the limit that is set, waits under every later one, and is refused if none is set",
		func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			none := func() {
				e.Helper()
				for _, wait := range []bool{false, true} {
					r := c.permits("s", 1, 0)
					r.Wait = wait
					if _, err := c.Acquire(e.ctx, r); !errors.Is(err, driver.ErrNoLimit) {
						e.Errorf("Acquire without a limit: %v; want ErrNoLimit", err)
					}
				}
			}
			none()
			h := a.get(a.permits("s", 1, 2))
			stays := e.h.LimitsStay != ""
			if !stays {
				none() // the limit in use is that of its users, and ends with them
			}
			if rec := a.inspect("s"); len(rec.Holders) != 1 || rec.Waiting != 0 || rec.Set != stays {
				e.Errorf("Inspect = %+v; want one holder, nobody waiting, and a limit that is set: %t", rec, stays)
			}
			a.setLimit("s", 5)
			a.release(h)
			e.hasLimit(a, "s", 5, true)
			three, two := a.get(a.permits("s", 3, 0)), b.get(b.permits("s", 2, 5))
			one := c.joinQueue(c.permits("s", 1, 0))
			a.setLimit("s", 2)
			a.release(three)
			e.noPush(one)
			a.setLimit("s", 8)
			one.pushed()
			large := c.joinQueue(c.permits("s", 9, 0)) // it may fit later
			e.noPush(large)
			a.setLimit("s", 12)
			large.pushed()
			a.setLimit("s", 0)
			none()
			b.refused(once(b.permits("s", 1, 12)))
			e.hasLimit(a, "s", 12, false)
			b.release(two)
			b.release(b.get(once(b.permits("s", 2, 12))))
		}},
	{
		"R9", "set limit",
		"the limit of a semaphore can be changed in use: a higher one lets waiters in, a lower one takes nothing away",
		func(e *env) {
			a, b := e.peer(), e.peer()
			h := a.get(a.permits("s", 2, 2))
			w := b.joinQueue(b.permits("s", 2, 2))
			b.setLimit("s", 4)
			next := w.pushed()
			b.setLimit("s", 1)
			if rec := a.inspect("s"); rec.Limit != 1 || len(rec.Holders) != 2 {
				e.Errorf("Inspect = %+v; want limit 1 and both holders", rec)
			}
			if _, err := b.Acquire(e.ctx, b.permits("s", 1, 4)); !errors.Is(err, driver.ErrKind) {
				e.Errorf("Acquire with the old limit: %v; want ErrKind", err)
			}
			a.release(h)
			b.refused(once(b.permits("s", 1, 1)))
			b.release(next)
			b.get(once(b.permits("s", 1, 1)))
		}},
	{"R19", "answer to set limit lost", "a limit whose answer was lost is set, and a repeat changes nothing",
		func(e *env) {
			a, b := e.peer(), e.peer()
			a.setLimit("known", 1) // so that the store already knows the name
			heal := a.DropReplies()
			e.answerLost(func(ctx context.Context) error { return a.SetLimit(ctx, e.name("s"), 2) })
			heal()
			e.eventually(func(ctx context.Context) bool { return a.SetLimit(ctx, e.name("s"), 2) == nil })
			e.hasLimit(b, "s", 2, true)
			b.release(b.get(once(b.permits("s", 2, 0))))
			e.hasLimit(b, "s", 2, true)
		}},
	{"R19", "a limit beside others", "of a limit that is set and a lock or latch at the same moment one succeeds",
		func(e *env) {
			a, b := e.peer(), e.peer()
			for i := range 12 {
				name := "x" + itoa(i)
				r := once(b.req(name))
				r.Wait = i%4 < 2
				latch := i%2 == 1
				var set, other error
				var both sync.WaitGroup
				both.Go(func() { set = a.SetLimit(e.ctx, r.Name, 2) })
				both.Go(func() {
					if latch {
						_, other = b.SetCount(e.ctx, r.Name, 1)
						return
					}
					var reply driver.Reply
					if reply, other = b.Acquire(e.ctx, r); other == nil && reply.Token == 0 {
						e.Errorf("a lock beside a limit: %+v; want a grant or an error", reply)
					}
				})
				both.Wait()
				if (set == nil) == (other == nil) || set != nil && !errors.Is(set, driver.ErrKind) ||
					other != nil && !errors.Is(other, driver.ErrKind) {
					e.Errorf("latch: %t; SetLimit: %v, the other: %v; want one success and one ErrKind", latch, set, other)
				}
				if rec := a.inspect(name); (rec.Kind == driver.Semaphore) != (set == nil) {
					e.Errorf("Inspect = %+v; SetLimit: %v, the other: %v", rec, set, other)
				}
			}
		}},
}

func (p *peer) setLimit(name string, n int) {
	p.e.Helper()
	if err := p.SetLimit(p.e.ctx, p.e.name(name), n); err != nil {
		p.e.Fatalf("SetLimit(%q, %d): %v", name, n, err)
	}
}

// limitEnds makes the limit of an unused semaphore end, where it does not do so by itself.
func (p *peer) limitEnds(name string) {
	p.e.Helper()
	if p.e.h.LimitsStay != "" {
		p.setLimit(name, 0)
	}
}

func (e *env) hasLimit(p *peer, name string, limit int, set bool) {
	e.Helper()
	if rec := p.inspect(name); rec.Kind != driver.Semaphore || rec.Limit != limit || rec.Set != set {
		e.Errorf("Inspect = %+v; want a semaphore of %d, set: %t", rec, limit, set)
	}
}

package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// reductions are the checks of Reduce.
var reductions = []check{
	{
		"R18", "give back permits",
		"permits that are given back go to the queue in order; the grant keeps its token, and never gets more again",
		func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			r := a.permits("s", 4, 5)
			h := a.get(r)
			b.get(b.permits("s", 1, 5))
			two, one := b.joinQueue(b.permits("s", 2, 5)), c.joinQueue(c.permits("s", 1, 5))
			a.reduce(h, 3)
			e.noPush(two, one) // the first does not fit, so the second waits behind it
			a.reduce(h, 2)
			two.pushed()
			e.noPush(one)
			a.reduce(h, 2) // its answer was lost
			a.reduce(h, 3) // it arrives late
			e.holds(a, h, 2)
			if reply := a.ask(r); reply.Token != h.Token {
				e.Errorf("the repeated request: %+v; want token %d", reply, h.Token)
			}
			e.holds(a, h, 2)
			e.noPush(one)
			held := c.adopt(h)
			e.holds(c, held, 2)
			if err := a.Reduce(e.ctx, h, 1); !driver.IsOver(err) {
				e.Errorf("Reduce under the old ID: %v; want ErrGone", err)
			}
			e.holds(c, held, 2)
			c.reduce(held, 1)
			one.pushed()
			e.holds(c, held, 1)
			b.refused(once(b.permits("s", 1, 5)))
			c.release(held)
			b.get(once(b.permits("s", 1, 5)))
			b.refused(once(b.permits("s", 1, 5)))
			if err := c.Reduce(e.ctx, held, 1); !driver.IsOver(err) {
				e.Errorf("Reduce of a grant that has ended: %v; want ErrGone", err)
			}
		}},
	{"R18", "reductions refused", "Reduce refuses a number below 1, and grants of locks", func(e *env) {
		a := e.peer()
		h := a.get(a.permits("s", 2, 2))
		for _, n := range []int{0, -1, driver.MaxLimit + 1} {
			if err := a.Reduce(e.ctx, h, n); !errors.Is(err, driver.ErrInvalid) {
				e.Errorf("Reduce to %d: %v; want ErrInvalid", n, err)
			}
		}
		a.reduce(h, 3)
		e.holds(a, h, 2)
		for _, r := range []*driver.Request{a.req("x"), a.shared("y")} {
			if err := a.Reduce(e.ctx, a.get(r), 1); !errors.Is(err, driver.ErrKind) {
				e.Errorf("Reduce of a lock: %v; want ErrKind", err)
			}
		}
	}},
	{"R18", "give back under a lower limit", "permits above a lowered limit go to nobody", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.permits("s", 4, 5))
		if err := a.SetLimit(e.ctx, h.Name, 2); err != nil {
			e.Fatalf("SetLimit: %v", err)
		}
		w := b.joinQueue(b.permits("s", 1, 2))
		a.reduce(h, 2)
		e.noPush(w)
		a.reduce(h, 1)
		w.pushed()
		e.holds(a, h, 1)
	}},
	{
		"R18", "give back within a minimum hold",
		"permits stay taken for their minimum hold; later as many are kept as the grant has then", func(e *env) {
			const least = 400 * time.Millisecond
			a, b := e.peer(), e.peer()
			r := a.permits("s", 3, 3)
			r.MinHold = least
			start := time.Now()
			h := a.get(r)
			e.eventually(func(ctx context.Context) bool {
				err := a.Reduce(ctx, h, 1)
				if err != nil && !errors.Is(err, driver.ErrInvalid) {
					e.Fatalf("Reduce: %v; want ErrInvalid for a while", err)
				}
				return err == nil
			})
			if d := time.Since(start); d < least {
				e.Errorf("given back %v after the request; the minimum hold is %v", d, least)
			}
			e.holds(a, h, 1)
			if err := a.Release(e.ctx, h, patience); err != nil {
				e.Fatalf("Release: %v", err)
			}
			b.get(once(b.permits("s", 2, 3)))
			b.refused(once(b.permits("s", 1, 3)))
		}},
	{"R18", "reductions at once", "of several reductions at once the smallest number remains", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.permits("s", 6, 6))
		var all sync.WaitGroup
		for _, n := range []int{5, 2, 4, 3} {
			all.Go(func() { e.eventually(func(ctx context.Context) bool { return a.Reduce(ctx, h, n) == nil }) })
		}
		all.Go(func() { e.eventually(func(ctx context.Context) bool { return renewAll(ctx, a, h) == nil }) })
		all.Wait()
		e.holds(a, h, 2)
		b.get(once(b.permits("s", 4, 6)))
		b.refused(once(b.permits("s", 1, 6)))
	}},
	{
		"R18", "answer to reduce lost", "a reduction that was not answered gives back as many permits, whether repeated or not",
		func(e *env) {
			a, b := e.peer(), e.peer()
			known := a.get(a.permits("known", 2, 2)) // so that the store already knows the name
			a.reduce(known, 1)
			h := a.get(a.permits("s", 4, 4))
			heal := a.DropReplies()
			e.answerLost(func(ctx context.Context) error { return a.Reduce(ctx, h, 2) })
			heal()
			e.eventually(func(ctx context.Context) bool {
				changes, err := a.Renew(ctx, []driver.Hold{h})
				if err == nil && len(changes) > 0 && changes[0].State != driver.Unknown {
					e.Fatalf("Renew after a reduction whose answer was lost = %+v; want that nothing has changed", changes)
				}
				return err == nil && len(changes) == 0
			})
			e.eventually(func(ctx context.Context) bool {
				err := a.Reduce(ctx, h, 2)
				if driver.IsOver(err) {
					e.Fatalf("Reduce, repeated: %v", err)
				}
				return err == nil
			})
			e.holds(a, h, 2)
			b.get(once(b.permits("s", 2, 4)))
			b.refused(once(b.permits("s", 1, 4)))
		}},
}

// reduce is a Reduce that must succeed.
func (p *peer) reduce(h driver.Hold, n int) {
	p.e.Helper()
	if err := p.Reduce(p.e.ctx, h, n); err != nil {
		p.e.Fatalf("Reduce(%q, %d): %v", h.Name, n, err)
	}
}

// holds checks that h is a living grant of n permits on record.
func (e *env) holds(p *peer, h driver.Hold, n int) {
	e.Helper()
	p.mustRenew(h)
	rec, err := e.healthy().Inspect(e.ctx, h.Name)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	for _, o := range rec.Holders {
		if o.ID == h.ID && o.Token == h.Token && o.N == n && o.Mode == driver.Permits && !o.Kept {
			return
		}
	}
	e.Fatalf("Inspect = %+v; want a grant of %d permits to %s with token %d", rec, n, h.ID, h.Token)
}

package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

var latches = []check{
	{"R5", "latch", "a latch is set once, counts each ID once, and opens at zero", func(e *env) {
		a, b := e.peer(), e.peer()
		name := e.name("l")
		if _, err := a.CountDown(e.ctx, name, "c-1"); !errors.Is(err, driver.ErrGone) {
			e.Errorf("CountDown without a latch: %v; want ErrGone", err)
		}
		if _, err := a.Await(e.ctx, name, "w-0"); !errors.Is(err, driver.ErrGone) {
			e.Errorf("Await without a latch: %v; want ErrGone", err)
		}
		a.newLatch("l", 2)
		if created, err := b.SetCount(e.ctx, name, 9); err != nil || created {
			e.Fatalf("second SetCount = %v, %v; want false", created, err)
		}
		reply := b.awaitNotYet("l", "w-1")
		a.countDown("l", "c-1", 1)
		a.countDown("l", "c-1", 1)
		b.countDown("l", "c-1", 1)
		if rec := a.inspect("l"); rec.Kind != driver.Latch || rec.Count != 1 {
			e.Errorf("Inspect = %+v; want a latch with 1 left", rec)
		}
		if _, err := a.Acquire(e.ctx, a.req("l")); !errors.Is(err, driver.ErrKind) {
			e.Errorf("a lock of a latch: %v; want ErrKind", err)
		}
		e.h.Restart(e.TB)
		e.eventually(func(ctx context.Context) bool { _, err := a.CountDown(ctx, name, "c-1"); return err == nil })
		e.eventually(func(ctx context.Context) bool {
			var err error
			reply, err = b.Await(ctx, name, "w-1")
			return err == nil
		})
		if reply.Token != 0 {
			e.Fatal("Await was granted with 1 left")
		}
		a.countDown("l", "c-2", 0)
		select {
		case <-reply.Wake:
		case <-time.After(patience):
			e.Error("a waiter of a latch got no push at zero")
		}
		a.countDown("l", "c-3", 0)
		if reply, err := b.Await(e.ctx, name, "w-1"); err != nil || reply.Token == 0 {
			e.Errorf("Await at zero = %+v, %v", reply, err)
		}
		if reply, err := a.Await(e.ctx, name, "w-2"); err != nil || reply.Token == 0 {
			e.Errorf("Await after zero = %+v, %v", reply, err)
		}
	}},
	{
		"R10", "remove a latch",
		"a removed latch leaves its name unused and wakes its waiters; a new latch starts from its own count", func(e *env) {
			a, b, op := e.peer(), e.peer(), e.conn()
			name := e.name("l")
			if err := op.RemoveLatch(e.ctx, name); !errors.Is(err, driver.ErrGone) {
				e.Errorf("RemoveLatch of nothing: %v; want ErrGone", err)
			}
			for what, r := range map[string]*driver.Request{"a mutex": a.req("k"), "a semaphore": a.permits("p", 1, 2)} {
				h := a.get(r)
				if err := op.RemoveLatch(e.ctx, r.Name); !errors.Is(err, driver.ErrKind) {
					e.Errorf("RemoveLatch of %s: %v; want ErrKind", what, err)
				}
				a.release(h)
				if r.Mode == driver.Permits {
					a.limitEnds("p")
				}
			}
			a.newLatch("l", 2)
			a.countDown("l", "c-1", 1)
			reply := b.awaitNotYet("l", "w-1")
			for _, token := range []uint64{0, 1, 2} {
				if err := op.Break(e.ctx, name, token); !errors.Is(err, driver.ErrGone) {
					e.Errorf("Break of a latch with token %d: %v; want ErrGone", token, err)
				}
			}
			a.countDown("l", "c-1", 1)
			if err := op.RemoveLatch(e.ctx, name); err != nil {
				e.Fatalf("RemoveLatch: %v", err)
			}
			select {
			case token := <-reply.Wake:
				if token != 0 {
					e.Errorf("pushed %d; want 0: ask again", token)
				}
			case <-time.After(patience):
				e.Error("a waiter of a latch got no push at its end")
			}
			if _, err := b.Await(e.ctx, name, "w-1"); !errors.Is(err, driver.ErrGone) {
				e.Errorf("Await of a removed latch: %v; want ErrGone", err)
			}
			if _, err := a.CountDown(e.ctx, name, "c-2"); !errors.Is(err, driver.ErrGone) {
				e.Errorf("CountDown of a removed latch: %v; want ErrGone", err)
			}
			if rec := a.inspect("l"); rec.Kind != driver.Unused || rec.Count != 0 {
				e.Errorf("Inspect = %+v; want unused", rec)
			}
			if list, err := a.List(e.ctx, e.prefix, "", 10); err != nil || len(list) != 0 {
				e.Errorf("List = %+v, %v; want nothing", list, err)
			}
			if err := op.RemoveLatch(e.ctx, name); !errors.Is(err, driver.ErrGone) {
				e.Errorf("second RemoveLatch: %v; want ErrGone", err)
			}
			a.newLatch("l", 2)
			a.countDown("l", "c-1", 1)
			a.countDown("l", "c-2", 0)
			if err := op.RemoveLatch(e.ctx, name); err != nil {
				e.Fatalf("RemoveLatch at zero: %v", err)
			}
			a.release(a.get(a.req("l")))
		}},
	{"R11", "latch push lost", "a waiter of a latch that misses the push learns of the change by asking again",
		func(e *env) {
			a, b := e.peer(), e.peer()
			a.newLatch("zero", 1)
			a.newLatch("removed", 1)
			b.awaitNotYet("zero", "w-1")
			b.awaitNotYet("removed", "w-2")
			heal := b.Cut()
			a.countDown("zero", "c-1", 0)
			if err := a.RemoveLatch(e.ctx, e.name("removed")); err != nil {
				e.Fatalf("RemoveLatch: %v", err)
			}
			heal()
			e.eventually(func(ctx context.Context) bool {
				reply, err := b.Await(ctx, e.name("zero"), "w-1")
				return err == nil && reply.Token == 1
			})
			if _, err := b.Await(e.ctx, e.name("removed"), "w-2"); !errors.Is(err, driver.ErrGone) {
				e.Errorf("Await of a removed latch: %v; want ErrGone", err)
			}
		}},
	{
		"R11", "latch interest",
		"an interest in a latch is no place in the queue; asking again renews it, and it gets the push", func(e *env) {
			e.useExpiry()
			a, b := e.peer(), e.shortPeer()
			e.retrySlow(func() (slow bool) {
				a.newLatch("l", 1)
				b.awaitNotYet("l", "w-1")
				if ch := b.renew(driver.Hold{Name: e.name("l"), ID: "w-1"}); ch.State != driver.Gone {
					e.Errorf("Renew of an interest = %+v; want Gone", ch)
				}
				var reply driver.Reply
				var life proof
				for range 4 {
					time.Sleep(e.h.TTL / 3)
					life = proof{e, nil, time.Now()}
					reply = b.awaitNotYet("l", "w-1")
				}
				a.countDown("l", "c-1", 0)
				if life.over() {
					return true
				}
				select {
				case <-reply.Wake:
				case <-time.After(patience):
					e.Error("no push at zero")
				}
				return false
			})
		}},
	{"R8", "latch cancel", "a waiter that cancels its interest in a latch gets no push", func(e *env) {
		a := e.peer()
		name := e.name("l")
		a.newLatch("l", 1)
		reply := a.awaitNotYet("l", "w-1")
		if err := a.Cancel(e.ctx, name, "w-1"); err != nil {
			e.Fatalf("Cancel: %v", err)
		}
		a.countDown("l", "c-1", 0)
		select {
		case <-reply.Wake:
			e.Error("a push after Cancel")
		case <-time.After(quiet):
		}
	}},
}

// newLatch makes a latch that did not exist.
func (p *peer) newLatch(name string, n int64) {
	p.e.Helper()
	if created, err := p.SetCount(p.e.ctx, p.e.name(name), n); err != nil || !created {
		p.e.Fatalf("SetCount(%q, %d) = %v, %v", name, n, created, err)
	}
}

// countDown is a CountDown that must leave want.
func (p *peer) countDown(name, id string, want int64) {
	p.e.Helper()
	if left, err := p.CountDown(p.e.ctx, p.e.name(name), id); err != nil || left != want {
		p.e.Fatalf("CountDown(%q, %s) = %d, %v; want %d", name, id, left, err, want)
	}
}

// awaitNotYet is an Await that must answer: not yet.
func (p *peer) awaitNotYet(name, id string) driver.Reply {
	p.e.Helper()
	reply, err := p.Await(p.e.ctx, p.e.name(name), id)
	if err != nil || reply.Token != 0 || reply.Wake == nil {
		p.e.Fatalf("Await(%q, %s) = %+v, %v", name, id, reply, err)
	}
	return reply
}

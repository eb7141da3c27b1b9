package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

var latches = []check{
	{"R5", "latch", "a latch is set once, counts each id once, and lets through at zero", func(e *env) {
		a, b := e.party(), e.party()
		name := e.name("l")
		if _, err := a.CountDown(e.ctx, name, "c-1"); !errors.Is(err, driver.ErrGone) {
			e.Errorf("CountDown without a latch: %v; want ErrGone", err)
		}
		if _, err := a.Await(e.ctx, name, "w-0"); !errors.Is(err, driver.ErrGone) {
			e.Errorf("Await without a latch: %v; want ErrGone", err)
		}
		if created, err := a.SetCount(e.ctx, name, 2); err != nil || !created {
			e.Fatalf("SetCount = %v, %v", created, err)
		}
		if created, err := b.SetCount(e.ctx, name, 9); err != nil || created {
			e.Fatalf("second SetCount = %v, %v; want false", created, err)
		}
		count := func(p *party, id string, want int64) {
			e.Helper()
			if left, err := p.CountDown(e.ctx, name, id); err != nil || left != want {
				e.Fatalf("CountDown(%s) = %d, %v; want %d", id, left, err, want)
			}
		}
		reply, err := b.Await(e.ctx, name, "w-1")
		if err != nil || reply.Token != 0 || reply.Wake == nil {
			e.Fatalf("Await = %+v, %v", reply, err)
		}
		count(a, "c-1", 1)
		count(a, "c-1", 1)
		count(b, "c-1", 1)
		if rec := a.inspect("l"); rec.Kind != driver.Latch || rec.Count != 1 {
			e.Errorf("Inspect = %+v; want a latch with 1 left", rec)
		}
		if _, err := a.Acquire(e.ctx, a.req("l")); !errors.Is(err, driver.ErrKind) {
			e.Errorf("a lock of a latch: %v; want ErrKind", err)
		}
		e.h.Restart(e.TB)
		e.eventually(func(ctx context.Context) bool { _, err := a.CountDown(ctx, name, "c-1"); return err == nil })
		e.eventually(func(ctx context.Context) bool { reply, err = b.Await(ctx, name, "w-1"); return err == nil })
		if reply.Token != 0 {
			e.Fatal("Await let through with 1 left")
		}
		count(a, "c-2", 0)
		select {
		case <-reply.Wake:
		case <-time.After(e.ttl / 2):
			e.Error("who awaits a latch was not woken at zero")
		}
		count(a, "c-3", 0)
		if reply, err := b.Await(e.ctx, name, "w-1"); err != nil || reply.Token == 0 {
			e.Errorf("Await at zero = %+v, %v", reply, err)
		}
		if reply, err := a.Await(e.ctx, name, "w-2"); err != nil || reply.Token == 0 {
			e.Errorf("Await after zero = %+v, %v", reply, err)
		}
	}},
	{"R8", "latch cancel", "who stops awaiting a latch is not woken", func(e *env) {
		a := e.party()
		name := e.name("l")
		if _, err := a.SetCount(e.ctx, name, 1); err != nil {
			e.Fatal(err)
		}
		reply, err := a.Await(e.ctx, name, "w-1")
		if err != nil {
			e.Fatal(err)
		}
		if err := a.Cancel(e.ctx, name, "w-1"); err != nil {
			e.Fatalf("Cancel: %v", err)
		}
		if left, err := a.CountDown(e.ctx, name, "c-1"); err != nil || left != 0 {
			e.Fatalf("CountDown = %d, %v", left, err)
		}
		select {
		case <-reply.Wake:
			e.Error("woken after Cancel")
		case <-time.After(e.ttl / 10):
		}
	}},
}

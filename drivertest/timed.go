package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	// callPatience is the deadline of a call to a silent store.
	callPatience = 100 * time.Millisecond

	// callLate is how late such a call may return: less than any timeout of a client.
	callLate = 150 * time.Millisecond

	// overdue is how long after its TTL a dead holder's lock may become free.
	overdue = time.Second
)

// timed are the checks of time limits.
var timed = []check{
	{
		"R4", "client keeps in time",
		"a lease is renewed for many TTLs while other work goes on, and TryLock names the holder", func(e *env) {
			ttl := max(e.h.TTL, 2*time.Second)
			a, b := e.clientFor(ttl), e.client(nil)
			l := e.lock(a, "x")
			ctx, stop := context.WithCancel(e.ctx)
			var work sync.WaitGroup
			for i := range 4 {
				work.Go(func() {
					for ctx.Err() == nil {
						err := a.Mutex(e.name(fmt.Sprint("work", i))).Do(ctx, func(context.Context) error { return nil })
						if err != nil && ctx.Err() == nil {
							e.Errorf("Do: %v", err)
							return
						}
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			defer work.Wait()
			defer stop()
			for range 6 {
				time.Sleep(ttl / 2)
				_, err := b.Mutex(e.name("x")).TryLock(e.ctx)
				var he *holdfast.Error
				if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &he) || he.Holder == nil || he.Holder.Token != l.Token() ||
					he.Holder.PID == 0 {
					e.Fatalf("TryLock: %v; want ErrHeld and the holder", err)
				}
			}
			if err := l.Err(); err != nil {
				e.Fatal(err)
			}
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
			e.lock(b, "x")
		}},
	{
		"R6", "dead holder in time",
		"the lock of a dead holder becomes free soon after its lease has expired, for a waiter and for a newcomer",
		func(e *env) {
			e.renewEvery = e.h.TTL / 3
			a, b := e.shortPeer(), e.peer()
			start := time.Now()
			for _, name := range []string{"waited", "asked"} {
				a.get(a.req(name))
			}
			a.Kill()
			r := b.req("waited")
			if b.waitGrant(r, b.ask(r), patience) == 0 {
				e.Fatal("a waiter was not served")
			}
			for b.ask(once(b.req("asked"))).Token == 0 {
				time.Sleep(e.h.TTL / 50)
			}
			if d := time.Since(start); d > e.h.TTL+overdue {
				e.Errorf("the locks of a dead holder became free after %v; the TTL is %v", d, e.h.TTL)
			}
		}},
	{"R1", "silent store in time", "with the network cut, every call ends with its context", func(e *env) {
		e.silentStore(e.checkReturned)
	}},
	{
		"R1", "close in time",
		"with the network cut, a client that holds a lock closes within its TTL, whatever its caller's context",
		func(e *env) {
			conn := e.conn()
			c := e.clientOn(conn, &holdfast.Config{TTL: max(e.h.TTL, 3*time.Second)})
			e.lock(c, "x")
			heal := conn.Cut()
			defer heal()
			start := time.Now()
			err := c.Close(context.Background())
			if d := time.Since(start); d > c.TTL()+overdue {
				e.Errorf("Close returned after %v (%v); the TTL is %v", d, err, c.TTL())
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				e.Errorf("Close: %v; want no context's error", err)
			}
		}},
	{
		"R1", "contexts in time",
		"with the network cut, every call of a client returns as soon as its context has ended, with the context's error",
		func(e *env) {
			e.callsWhileCut(false, e.ttl, func(what string, call func(context.Context) error) {
				ctx, cancel := context.WithTimeout(e.ctx, callPatience)
				defer cancel()
				start := time.Now()
				err := call(ctx)
				e.checkReturned(what, err, time.Since(start))
				if !errors.Is(err, context.DeadlineExceeded) {
					e.Errorf("%s with a context of %v: %v; want context.DeadlineExceeded", what, callPatience, err)
				}
			})
		}},
}

// checkReturned checks when a call with a context of callPatience returned.
func (e *env) checkReturned(call string, err error, took time.Duration) {
	e.Helper()
	if took > callPatience+callLate {
		e.Errorf("%s with a context of %v returned after %v (%v)", call, callPatience, took, err)
	}
}

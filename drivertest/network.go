package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// silentNetwork are the checks of a network that stops silently, through package holdfast.
var silentNetwork = []check{
	{
		"R11", "forgotten connections",
		"when all connections die silently, leases of the default TTL remain and waiters are served", func(e *env) {
			e.useExpiry()
			const ttl = holdfast.DefaultTTL
			conn := e.conn()
			renewed := make(chan time.Time, 1000)
			a, b := e.clientOn(conn, &holdfast.Config{TTL: ttl, Observer: &holdfast.Observer{
				Renewed: func(_ int, took time.Duration, err error) {
					if err == nil {
						renewed <- time.Now().Add(-took)
					}
				},
			}}), e.clientFor(ttl)
			var many sync.WaitGroup
			for i := range 16 { // as many connections as the client would open
				many.Go(func() {
					for j := range 5 {
						e.do(a.Mutex(e.name(fmt.Sprint(i, "/", j))).Do, func(context.Context) error { return nil })
					}
				})
			}
			many.Wait()
			l, other := e.lock(a, "x"), e.lock(b, "y")
			got := make(chan error, 1)
			go func() { _, err := a.Mutex(e.name("y")).Lock(e.ctx); got <- err }()
			e.until("one waits", func() bool { return e.waiting(b, "y") == 1 })
			conn.Forget()
			forgotten := time.Now()
			for proven := false; !proven; {
				select {
				case sent := <-renewed:
					proven = sent.After(forgotten)
				case <-l.Done():
					e.Fatalf("the lease was lost %v after its connections were forgotten: %v", time.Since(forgotten), l.Err())
				case <-time.After(4 * ttl):
					e.Fatal("no renewal, and the lease is still valid")
				}
			}
			if err := l.Err(); err != nil {
				e.Fatalf("after a renewal: %v", err)
			}
			if err := other.Release(); err != nil {
				e.Fatal(err)
			}
			select {
			case err := <-got:
				if err != nil {
					e.Errorf("Lock: %v", err)
				}
			case <-time.After(patience):
				e.Error("a waiter whose connections were forgotten is not served")
			}
			if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrUncertain) &&
				!errors.Is(err, holdfast.ErrUnavailable) {
				e.Errorf("Release: %v", err)
			}
			e.until("the name is free", func() bool { return e.free(b, "x") })
		}},
	{"R1", "no deadline", "an error of a silent store is never a deadline error for a caller that has set no deadline",
		func(e *env) {
			e.useExpiry()
			e.callsWhileCut(true, e.h.TTL, func(what string, call func(context.Context) error) {
				err := call(context.Background())
				if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
					e.Errorf("%s without a deadline: %v, which is a context's error", what, err)
				}
				if !errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) {
					e.Errorf("%s of a silent store: %v; want ErrUncertain or ErrUnavailable", what, err)
				}
			})
		}},
}

// callsWhileCut makes each call of a client that asks the store, while its network is cut.
// together: the slow calls run in parallel.
func (e *env) callsWhileCut(together bool, ttl time.Duration, try func(what string, call func(context.Context) error)) {
	e.Helper()
	conn := e.conn()
	c := e.clientOn(conn, &holdfast.Config{TTL: ttl})
	m, rw := c.Mutex(e.name("x")), c.RWMutex(e.name("rw"))
	held := e.lock(c, "held")
	_ = e.lock(c, "warm").Release() // on a slow machine it may be lost by now
	nothing := func(context.Context) error { return nil }
	lease := func(f func(context.Context) (*holdfast.Lease, error)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx); return err }
	}
	calls := map[string]func(context.Context) error{
		"Mutex.Lock":    lease(m.Lock),
		"Mutex.TryLock": lease(m.TryLock),
		"Mutex.Do":      func(ctx context.Context) error { return m.Do(ctx, nothing) },
		"RWMutex.RLock": lease(rw.RLock),
		"RWMutex.Lock":  lease(rw.Lock),
		"LockAll":       func(ctx context.Context) error { _, err := holdfast.LockAll(ctx, m, rw); return err },
		"TryLockAll":    func(ctx context.Context) error { _, err := holdfast.TryLockAll(ctx, m, rw); return err },
		"Inspect":       func(ctx context.Context) error { _, err := c.Inspect(ctx, e.name("x")); return err },
		"Break":         func(ctx context.Context) error { return c.Break(ctx, e.name("held"), held.Token(), "") },
		"Campaign":      lease(c.Election(e.name("boss")).Campaign),
		"Leader":        func(ctx context.Context) error { _, err := c.Election(e.name("boss")).Leader(ctx); return err },
		"Locks": func(ctx context.Context) (err error) {
			for _, err = range c.Locks(ctx, e.prefix) {
				if err != nil {
					return err
				}
			}
			return err
		},
	}
	if !together { // it does not end by itself
		calls["Watch"] = func(ctx context.Context) error {
			for range c.Watch(ctx, e.prefix) {
			}
			return ctx.Err()
		}
	}
	if !e.locksOnly() {
		s, latch := c.Semaphore(e.name("s"), 3), c.Latch(e.name("l"))
		calls["Semaphore.Acquire"] = func(ctx context.Context) error { _, err := s.Acquire(ctx, 2); return err }
		calls["SetLimit"] = func(ctx context.Context) error { return c.SetLimit(ctx, e.name("s"), 5) }
		calls["Latch.Set"] = func(ctx context.Context) error { _, err := latch.Set(ctx, 2); return err }
		calls["Latch.CountDown"] = func(ctx context.Context) error { _, err := latch.CountDown(ctx, "c-1"); return err }
		calls["Latch.Wait"] = latch.Wait
	}
	heal := conn.Cut()
	defer heal()
	var all sync.WaitGroup
	for _, what := range slices.Sorted(maps.Keys(calls)) {
		all.Go(func() { try(what, calls[what]) })
		if !together {
			all.Wait()
		}
	}
	all.Wait()
}

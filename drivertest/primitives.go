package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// primitives checks every kind of lock of package holdfast on the store.
var primitives = []check{
	{"R7", "read and write", "readers share, writers are alone, and both get in", func(e *env) {
		var readers, writers, together atomic.Int64
		var all sync.WaitGroup
		var locks []*holdfast.RWMutex
		for range 8 { // before any of them is used: all are to be used at the same time
			locks = append(locks, e.client(nil).RWMutex(e.name("x")))
		}
		for i, m := range locks {
			all.Go(func() {
				for range 15 {
					if i < 2 {
						e.do(m.Do, func(context.Context) error {
							if w, r := writers.Add(1), readers.Load(); w != 1 || r != 0 {
								e.Errorf("%d writers beside %d readers", w, r)
							}
							writers.Add(-1)
							return nil
						})
					} else {
						e.do(m.RDo, func(context.Context) error {
							r := readers.Add(1)
							if w := writers.Load(); w != 0 {
								e.Errorf("%d readers beside %d writers", r, w)
							}
							together.Store(max(together.Load(), r))
							time.Sleep(2 * time.Millisecond)
							readers.Add(-1)
							return nil
						})
					}
				}
			})
		}
		all.Wait()
		if n := together.Load(); n < 2 {
			e.Errorf("at most %d reader at a time", n)
		}
	}},
	{"R4", "downgrade of a client", "a writer that becomes a reader lets readers in and no writers", func(e *env) {
		a, b, c := e.client(nil), e.client(nil), e.client(nil)
		l, err := a.RWMutex(e.name("x")).Lock(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		reader, writer := make(chan *holdfast.Lease, 1), make(chan *holdfast.Lease, 1)
		lock := func(ch chan *holdfast.Lease, f func(context.Context) (*holdfast.Lease, error)) {
			l, err := f(e.ctx)
			if err != nil {
				e.Errorf("Lock: %v", err)
			}
			ch <- l
		}
		go lock(reader, b.RWMutex(e.name("x")).RLock)
		e.until("the reader waits", func() bool { return e.waiting(a, "x") == 1 })
		go lock(writer, c.RWMutex(e.name("x")).Lock)
		e.until("the writer waits", func() bool { return e.waiting(a, "x") == 2 })
		if err := l.Downgrade(); err != nil {
			e.Fatalf("Downgrade: %v", err)
		}
		r := <-reader
		time.Sleep(quiet)
		if e.h.Bubble { // both are renewed several times
			time.Sleep(2 * e.ttl)
		}
		if err := errors.Join(l.Err(), r.Err()); err != nil {
			e.Fatalf("a reader after the downgrade: %v", err)
		}
		if len(writer) != 0 {
			e.Error("a writer was granted while readers held the lock")
		}
		if err := errors.Join(l.Release(), r.Release()); err != nil {
			e.Error(err)
		}
		if w := <-writer; w != nil && w.Token() <= l.Token() {
			e.Errorf("token %d after %d", w.Token(), l.Token())
		}
	}},
	{"R7", "permits of clients", "the holders of a semaphore never have more than its limit, and large requests get in",
		func(e *env) {
			const limit = 4
			var used, most atomic.Int64
			var all sync.WaitGroup
			for i := range 6 {
				s, n := e.client(nil).Semaphore(e.name("s"), limit), i%3+1
				if i == 0 {
					n = limit
				}
				all.Go(func() {
					for range 15 {
						do := func(ctx context.Context, f func(context.Context) error) error { return s.Do(ctx, n, f) }
						e.do(do, func(context.Context) error {
							u := used.Add(int64(n))
							if u > limit {
								e.Errorf("%d permits of %d", u, limit)
							}
							most.Store(max(most.Load(), u))
							time.Sleep(time.Millisecond)
							used.Add(int64(-n))
							return nil
						})
					}
				})
			}
			all.Wait()
			if most.Load() != limit {
				e.Errorf("at most %d permits of %d were used", most.Load(), limit)
			}
		}},
	{"R5", "latch of clients", "waiters of a latch continue when it has been counted down", func(e *env) {
		e.useExpiry()
		a, b, c := e.clientFor(e.h.TTL), e.clientFor(e.h.TTL), e.client(nil)
		if _, err := c.Latch(e.name("l")).Set(e.ctx, 3); err != nil {
			e.Fatal(err)
		}
		errs := make(chan error, 2)
		for _, waiter := range []*holdfast.Client{a, b} { // they try for a TTL only
			go func() { errs <- e.answered(func() error { return waiter.Latch(e.name("l")).Wait(e.ctx) }) }()
		}
		e.sleepPastTTL() // until the interests of the waiters expire, unless they ask again
		for _, id := range []string{"1", "1", "2", ""} {
			if len(errs) > 0 {
				e.Fatal("Wait returned before zero")
			}
			if _, err := c.Latch(e.name("l")).CountDown(e.ctx, id); err != nil {
				e.Fatal(err)
			}
		}
		for range 2 {
			if err := <-errs; err != nil {
				e.Error(err)
			}
		}
	}},
	{"R7", "several at once", "clients that take the same locks in any order do not deadlock", func(e *env) {
		var inside [3]atomic.Int64
		var all sync.WaitGroup
		for i := range 4 {
			c := e.client(nil)
			parts := []holdfast.Part{c.Mutex(e.name("a")), c.Mutex(e.name("b")), c.Mutex(e.name("c"))}
			use := []int{0, 1, 2}
			if i%2 == 1 {
				slices.Reverse(parts)
				slices.Reverse(use)
			}
			parts, use = parts[i/2:], use[i/2:]
			all.Go(func() {
				for range 8 {
					err := holdfast.DoAll(e.ctx, func(context.Context) error {
						for _, u := range use {
							if n := inside[u].Add(1); n != 1 {
								e.Errorf("%d inside", n)
							}
						}
						for _, u := range use {
							inside[u].Add(-1)
						}
						return nil
					}, parts...)
					if err != nil {
						e.Errorf("DoAll: %v", err)
						return
					}
				}
			})
		}
		all.Wait()
	}},
	{"R6", "election", "the next leader follows within a TTL, with a larger term, and everybody sees it", func(e *env) {
		e.useExpiry()
		conn := e.conn()
		first := e.clientOn(conn, &holdfast.Config{TTL: steadyTTL}).
			Election(e.name("boss"), holdfast.Candidate("first", "1.example:1"))
		second := e.client(nil).Election(e.name("boss"), holdfast.Candidate("second", "2.example:1"))
		l, err := first.Campaign(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		got := make(chan *holdfast.Lease, 1)
		e.spawn(func() {
			l, err := second.Campaign(e.ctx)
			if err != nil {
				e.Errorf("Campaign: %v", err)
			}
			got <- l
		})
		now, err := second.Leader(e.ctx)
		if err != nil || now == nil || now.Name != "first" || now.Address != "1.example:1" || now.Term != l.Token() {
			e.Fatalf("Leader: %+v, %v", now, err)
		}
		conn.Kill()
		next := <-got
		if next == nil || next.Token() <= l.Token() {
			e.Fatalf("the next leader: %+v", next)
		}
		if now, err = second.Leader(e.ctx); err != nil || now == nil || now.Name != "second" || now.Term != next.Token() {
			e.Errorf("Leader: %+v, %v", now, err)
		}
	}},
}

package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// clients are the checks through package holdfast, which waits and renews.
var clients = []check{
	{"R4", "client excludes", "many goroutines of several clients never hold one name together, and tokens grow",
		func(e *env) {
			var inside, rounds atomic.Int64
			var mu sync.Mutex
			last := uint64(0)
			var all sync.WaitGroup
			for range 4 {
				c := e.client(nil)
				for range 4 {
					all.Go(func() {
						for range 10 {
							e.do(c.Mutex(e.name("x")).Do, func(ctx context.Context) error {
								if n := inside.Add(1); n != 1 {
									e.Errorf("%d inside", n)
								}
								mu.Lock()
								if t := holdfast.Token(ctx); t <= last {
									e.Errorf("token %d after %d", t, last)
								} else {
									last = t
								}
								mu.Unlock()
								rounds.Add(1)
								inside.Add(-1)
								return nil
							})
						}
					})
				}
			}
			all.Wait()
			if rounds.Load() != 160 {
				e.Errorf("%d rounds; want 160", rounds.Load())
			}
		}},
	{"R6", "client cut off", "a holder that is cut off learns of its loss before another can have the lock", func(e *env) {
		e.useExpiry()
		conn := e.conn()
		a, b := e.clientOn(conn, &holdfast.Config{TTL: e.h.TTL}), e.client(nil)
		l := e.lock(a, "x")
		ctx := l.Context(e.ctx)
		var told time.Time
		seen := make(chan struct{})
		go func() { <-ctx.Done(); told = time.Now(); close(seen) }()
		got := make(chan time.Time, 1)
		e.spawn(func() {
			l2, err := b.Mutex(e.name("x")).Lock(e.ctx)
			if l.Err() == nil {
				e.Error("the first lease was valid when another had the lock")
			}
			if err != nil {
				e.Errorf("Lock: %v", err)
			} else if l2.Token() <= l.Token() {
				e.Errorf("token %d after %d", l2.Token(), l.Token())
			}
			got <- time.Now()
		})
		time.Sleep(e.h.TTL / 5)
		heal := conn.Cut()
		defer heal()
		at := <-got
		<-seen
		if e.h.Bubble && !told.Before(at) { // outside a bubble either goroutine may run first
			e.Errorf("noticed %v after another had the lock", told.Sub(at))
		}
		if cause := context.Cause(ctx); !errors.Is(cause, holdfast.ErrLost) {
			e.Errorf("cause %v; want ErrLost", cause)
		}
		if err := l.Release(); !errors.Is(err, holdfast.ErrLost) {
			e.Errorf("Release: %v; want ErrLost", err)
		}
	}},
	{"R10", "break of a client's grant", "a holder whose grant an operator broke learns of it at its next renewal, and why",
		func(e *env) {
			e.useExpiry()
			a, b := e.clientFor(steadyTTL), e.client(nil)
			e.retrySlow(func() (slow bool) {
				l := e.lock(a, "x")
				if err := b.Break(e.ctx, e.name("x"), l.Token(), "stuck"); err != nil {
					e.Fatal(err)
				}
				select {
				case <-l.Done():
				case <-time.After(patience):
					e.Fatal("the holder did not learn of it")
				}
				var he *holdfast.Error
				err := l.Release()
				if errors.As(err, &he) && he.Reason == holdfast.ReasonEnded {
					return true // the operator's client wrote its notice too late
				}
				if he == nil || he.Reason != holdfast.ReasonBroken || he.Notice == nil || he.Notice.Reason != "stuck" {
					e.Errorf("Release: %v; want lost, broken, stuck", err)
				}
				return false
			})
		}},
	{"R8", "client cancelled", "a cancelled wait leaves the queue at once, with the context's error", func(e *env) {
		a, b, c := e.client(nil), e.client(nil), e.client(nil)
		l := e.lock(a, "x")
		ctx, cancel := context.WithCancel(e.ctx)
		errs := make(chan error, 1)
		go func() { _, err := b.Mutex(e.name("x")).Lock(ctx); errs <- err }()
		e.until("one waits", func() bool { return e.waiting(a, "x") == 1 })
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			e.Errorf("Lock: %v; want context.Canceled", err)
		}
		e.until("nobody waits", func() bool { return e.waiting(a, "x") == 0 })
		if err := l.Release(); err != nil {
			e.Fatal(err)
		}
		if _, err := c.Mutex(e.name("x")).TryLock(e.ctx); err != nil {
			e.Errorf("TryLock after a cancelled wait: %v", err)
		}
	}},
	{
		"R6", "client long silent",
		"a lock handed over after a long silence is confirmed before it is used: no lease is expired at once", func(e *env) {
			e.useExpiry()
			conn := e.conn()
			a, b := e.client(nil), e.clientOn(conn, &holdfast.Config{TTL: steadyTTL})
			l := e.lock(a, "x")
			got := make(chan *holdfast.Lease, 1)
			e.spawn(func() {
				l, err := b.Mutex(e.name("x")).Lock(e.ctx)
				if err != nil {
					e.Errorf("Lock: %v", err)
				}
				got <- l
			})
			e.until("one waits", func() bool { return e.waiting(a, "x") == 1 })
			// Cut off for long enough that its last proof is old, but not so long that its place
			// expires.
			heal := conn.Cut()
			time.Sleep(steadyTTL * 6 / 10)
			heal()
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
			l = <-got
			if l == nil {
				return
			}
			if err := l.Err(); err != nil {
				e.Fatalf("expired at once: %v", err)
			}
			if e.h.Bubble { // renewed several times
				time.Sleep(2 * steadyTTL)
				if err := l.Err(); err != nil {
					e.Fatalf("a lease handed over after a silence: %v", err)
				}
			}
			if err := l.Release(); err != nil {
				e.Error(err)
			}
		}},
	{"R4", "client hands off", "a lease that is handed off is adopted in its mode, and nobody gets the lock in between",
		func(e *env) {
			a, b, c := e.client(nil), e.client(nil), e.client(nil)
			for _, shared := range []bool{false, true} {
				take := a.RWMutex(e.name("x")).Lock
				if shared {
					take = a.RWMutex(e.name("x")).RLock
				}
				l, err := take(e.ctx)
				if err != nil {
					e.Fatal(err)
				}
				ticket, _, err := l.HandOff()
				if err != nil {
					e.Fatal(err)
				}
				got, err := b.Adopt(e.ctx, ticket)
				if err != nil {
					e.Fatalf("Adopt: %v", err)
				}
				if got.Token() != l.Token() {
					e.Errorf("adopted token %d; want %d", got.Token(), l.Token())
				}
				if _, err := c.RWMutex(e.name("x")).TryLock(e.ctx); !errors.Is(err, holdfast.ErrHeld) {
					e.Errorf("TryLock of another: %v; want ErrHeld", err)
				}
				inner, err := b.RWMutex(e.name("x"), holdfast.Reentrant()).TryLock(got.Context(e.ctx))
				if want := map[bool]error{true: holdfast.ErrUpgrade}[shared]; !errors.Is(err, want) {
					e.Errorf("a write lease borrowed from the adopted lease (shared: %t): %v, %v", shared, inner, err)
				}
				if err := got.Release(); err != nil {
					e.Errorf("Release: %v", err)
				}
			}
		}},
	{"R6", "client dies", "the waiters of a client that died are served within a TTL of its last renewal", func(e *env) {
		e.useExpiry()
		conn := e.conn()
		a, b := e.clientOn(conn, &holdfast.Config{TTL: e.h.TTL}), e.clientFor(e.h.TTL)
		e.lock(a, "x")
		got := make(chan error, 1)
		go func() {
			got <- e.answered(func() error { _, err := b.Mutex(e.name("x")).Lock(e.ctx); return err })
		}()
		e.until("one waits", func() bool { return e.waiting(b, "x") == 1 })
		start := time.Now()
		conn.Kill()
		if err := <-got; err != nil {
			e.Fatal(err)
		}
		if d := time.Since(start); d > e.h.TTL+e.slack() {
			e.Errorf("served %v after the holder died; the TTL is %v", d, e.h.TTL)
		}
	}},
	{"R3", "client survives a restart", "waiters and new locks go on after the store was restarted", func(e *env) {
		a, b := e.clientFor(steadyTTL), e.clientFor(steadyTTL)
		l := e.lock(a, "x")
		got := make(chan error, 1)
		go func() { _, err := b.Mutex(e.name("x")).Lock(e.ctx); got <- err }()
		e.until("one waits", func() bool { return e.waiting(a, "x") == 1 })
		e.h.Restart(e.TB)
		if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrUncertain) &&
			!errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrLost) {
			e.Errorf("Release: %v", err)
		}
		select {
		case err := <-got:
			if err != nil {
				e.Errorf("Lock: %v", err)
			}
		case <-time.After(patience):
			e.Error("a waiter was lost in a restart")
		}
		e.lock(a, "y")
	}},
}

// do calls Do until f has run, which it does once. A busy machine may keep an answer to itself.
func (e *env) do(do func(context.Context, func(context.Context) error) error, f func(context.Context) error) {
	e.Helper()
	ran := false
	for {
		err := do(e.ctx, func(ctx context.Context) error { ran = true; return f(ctx) })
		if err == nil || ran && retryable(err) {
			return
		}
		if !retryable(err) || e.ctx.Err() != nil {
			e.Errorf("Do: %v", err)
			return
		}
	}
}

func (e *env) client(cfg *holdfast.Config) *holdfast.Client {
	e.Helper()
	return e.clientOn(e.conn(), cfg)
}

// clientFor is client with its own TTL.
func (e *env) clientFor(ttl time.Duration) *holdfast.Client {
	e.Helper()
	return e.client(&holdfast.Config{TTL: ttl})
}

func (e *env) clientOn(conn Conn, cfg *holdfast.Config) *holdfast.Client {
	e.Helper()
	if cfg == nil {
		cfg = &holdfast.Config{}
	}
	if cfg.TTL == 0 {
		cfg.TTL = e.ttl
	}
	c, err := holdfast.New(e.ctx, conn, cfg)
	for retryable(err) && e.ctx.Err() == nil { // a busy machine may answer too late
		time.Sleep(10 * time.Millisecond) // a server that refuses connections answers at once
		c, err = holdfast.New(e.ctx, conn, cfg)
	}
	if err != nil {
		e.Fatalf("New: %v", err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // its network may be gone
	})
	return c
}

// lock is a Lock that must be granted. With a short TTL, a busy machine may answer too late.
func (e *env) lock(c *holdfast.Client, name string) (l *holdfast.Lease) {
	e.Helper()
	err := e.answered(func() (err error) { l, err = c.Mutex(e.name(name)).Lock(e.ctx); return err })
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	return l
}

func (e *env) waiting(c *holdfast.Client, name string) int {
	e.Helper()
	r, err := c.Inspect(e.ctx, e.name(name))
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	return r.Waiting
}

// until polls until a condition is true.
func (e *env) until(what string, ok func() bool) {
	e.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("never came true: %s", what)
		}
	}
}

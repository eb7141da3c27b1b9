package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestDo(t *testing.T) {
	store := memlock.New()
	c, other := client(t, store, nil), client(t, store, nil)
	m := c.Mutex("x")
	var inside context.Context
	boom := errors.New("boom")
	err := m.Do(t.Context(), func(ctx context.Context) error {
		inside = ctx
		if holdfast.Token(ctx) == 0 {
			t.Error("no token")
		}
		if _, err := other.Mutex("x").TryLock(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock: %v; want ErrHeld", err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("Do: %v; want the function's error", err)
	}
	if cause := context.Cause(inside); !errors.Is(cause, holdfast.ErrReleased) {
		t.Errorf("the function's context afterwards: %v; want ErrReleased", cause)
	}
	func() {
		defer func() { _ = recover() }()
		_ = m.Do(t.Context(), func(context.Context) error { panic("boom") })
	}()
	release(t, lock(t, other, "x")) // the panic released it
	if holdfast.Token(t.Context()) != 0 {
		t.Error("a token from nowhere")
	}
}

func TestDoReportsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			conn.Cut()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
				t.Errorf("cause: %v", context.Cause(ctx))
			}
			return nil
		})
		isLost(t, err, holdfast.ReasonUnreachable)
	})
}

// A release that finds the grant broken says so: nothing had expired.
func TestReleaseOfABrokenLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := lock(t, c, "x")
		if err := c.Break(t.Context(), "x", l.Token(), ""); err != nil {
			t.Fatal(err)
		}
		isLost(t, l.Release(), holdfast.ReasonBroken)
	})
}

func TestTryLockNamesTheHolder(t *testing.T) {
	store := memlock.New()
	a := client(t, store, &holdfast.Config{Program: "deploy.sh", Labels: map[string]string{"ticket": "OPS-12"}})
	b := client(t, store, nil)
	l := lock(t, a, "x", holdfast.Note("release 12"), holdfast.Label("step", "migrate"))
	_, err := b.Mutex("x").TryLock(t.Context())
	var e *holdfast.Error
	if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil {
		t.Fatalf("TryLock: %v", err)
	}
	h := e.Holder
	if h.Program != "deploy.sh" || h.Note != "release 12" || h.Labels["ticket"] != "OPS-12" ||
		h.Labels["step"] != "migrate" ||
		h.PID == 0 || h.Host == "" || h.Token != l.Token() || time.Since(h.Since) > time.Minute || h.Left <= 0 || h.Shared ||
		h.Permits != 1 {
		t.Errorf("Holder = %+v", h)
	}
	if text := err.Error(); !strings.Contains(text, `try lock "x": held by another: deploy.sh (`) ||
		!strings.Contains(text, `"release 12" for `) {
		t.Errorf("Error() = %s", text)
	}
	rec, err := b.Inspect(t.Context(), "x")
	if err != nil || rec.Kind != "lock" || len(rec.Holders) != 1 || rec.Holders[0].Note != "release 12" {
		t.Errorf("Inspect = %+v, %v", rec, err)
	}
}

func TestWaitAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		l := lock(t, a, "x")
		within(t, "Lock", 3*time.Second, 3*time.Second+50*time.Millisecond, func() {
			_, err := b.Mutex("x", holdfast.WaitAtMost(3*time.Second)).Lock(t.Context())
			var e *holdfast.Error
			if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil || e.Holder.Token != l.Token() {
				t.Errorf("Lock: %v; want ErrHeld and the holder", err)
			}
		})
		if r, err := a.Inspect(t.Context(), "x"); err != nil || r.Waiting != 0 {
			t.Errorf("%d waiting, %v", r.Waiting, err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("tea time"))
		defer cancel()
		_, err := b.Mutex("x").Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "tea time") {
			t.Errorf("Lock: %v; want DeadlineExceeded with its cause", err)
		}
		if _, err := b.Mutex("y").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock of a free name with a context that has ended: %v", err)
		}
	})
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var tries atomic.Int32
		h := &hooks{Backend: store}
		h.acquire = func(_ context.Context, r *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			if tries.Add(1); r.Wait {
				t.Error("a polling request joined the queue")
			}
			return next()
		}
		a, b := client(t, store, nil), client(t, h, nil)
		l := lock(t, a, "x")
		m := b.Mutex("x", holdfast.Poll(time.Second, 4))
		within(t, "Lock", 3500*time.Millisecond, 7*time.Second, func() { // pauses of 1, 2 and 4 s, or half
			if _, err := m.Lock(t.Context()); !errors.Is(err, holdfast.ErrHeld) || tries.Load() != 4 {
				t.Errorf("Lock: %v after %d tries; want ErrHeld after 4", err, tries.Load())
			}
		})
		time.AfterFunc(1500*time.Millisecond, func() { release(t, l) })
		within(t, "Lock", 1500*time.Millisecond, 3*time.Second, func() {
			if _, err := m.Lock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		for _, d := range []time.Duration{time.Second, 25 * time.Second} {
			l := lock(t, a, "x", holdfast.MaxHold(d))
			ctx := l.Context(t.Context())
			within(t, "the lease", d-d/100, d, func() { <-ctx.Done() })
			isLost(t, l.Err(), holdfast.ReasonMaxHold)
			within(t, "the name", 0, time.Millisecond, func() { release(t, lock(t, b, "x")) })
			isLost(t, l.Release(), holdfast.ReasonMaxHold)
		}
	})
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		for _, d := range []time.Duration{3 * time.Second, 42 * time.Second} {
			within(t, "the name", d, d+100*time.Millisecond, func() {
				release(t, lock(t, a, "x", holdfast.MinHold(d)))
				if err := a.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
			within(t, "the name of a client that died", d, d+100*time.Millisecond, func() {
				conn := drivertest.Faulty(store)
				lock(t, client(t, conn, nil), "y", holdfast.MinHold(d))
				conn.Kill()
				if d < ttl { // the lease lasts longer
					time.Sleep(d)
					return
				}
				release(t, lock(t, b, "y"))
			})
			time.Sleep(ttl)
		}
	})
}

func TestReentrancy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		outer := lock(t, c, "x")
		ctx := outer.Context(t.Context())
		for _, c := range []*holdfast.Client{c, client(t, store, nil)} {
			if _, err := c.Mutex("x").Lock(ctx); !errors.Is(err, holdfast.ErrDeadlock) {
				t.Errorf("Lock under its own lease: %v; want ErrDeadlock", err)
			}
		}
		m := c.Mutex("x", holdfast.Reentrant())
		l, err := m.Lock(ctx)
		if err != nil || l.Token() != outer.Token() {
			t.Fatalf("Lock: %v, %v", l, err)
		}
		release(t, l)
		if outer.Err() != nil {
			t.Fatal("the release of a borrowed lease ended the outer one")
		}
		if err := l.Release(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("second Release: %v", err)
		}
		// Through leases of another name, twice.
		l2, err := c.Mutex("y").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		l3, err := m.Lock(l2.Context(ctx))
		if err != nil {
			t.Fatal(err)
		}
		l4, err := c.Mutex("x", holdfast.Reentrant(), holdfast.MaxHold(time.Second)).TryLock(l3.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		within(t, "a borrowed lease with MaxHold", time.Second, time.Second, func() { <-l4.Done() })
		isLost(t, l4.Err(), holdfast.ReasonMaxHold)
		inner := l3.Context(t.Context())
		release(t, outer)
		<-inner.Done()
		if err := l3.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("a borrowed lease after the outer one ended: %v", err)
		}
		release(t, l2)
		// The context of a lease that has ended holds nothing.
		l, err = c.Mutex("x").Lock(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Lock with the context of a lease that is over: %v, %v", l, err)
		}
		release(t, lock(t, c, "x"))
	})
}

func TestStoreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		heal := conn.Cut()
		within(t, "TryLock", 0, 5*time.Second, func() {
			if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("TryLock: %v; want ErrUncertain", err)
			}
		})
		within(t, "Lock", ttl, ttl+5*time.Second, func() {
			if _, err := c.Mutex("x").Lock(t.Context()); !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("Lock: %v; want ErrUncertain", err)
			}
		})
		within(t, "Lock", 3*time.Second, 3*time.Second+50*time.Millisecond, func() {
			if _, err := c.Mutex("x", holdfast.WaitAtMost(3*time.Second)).
				Lock(t.Context()); !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("Lock: %v; want ErrUncertain", err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		within(t, "Lock", time.Second, time.Second+50*time.Millisecond, func() {
			if _, err := c.Mutex("x").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock: %v; want DeadlineExceeded", err)
			}
		})
		time.AfterFunc(3*time.Second, heal)
		within(t, "Lock", 3*time.Second, 8*time.Second, func() { release(t, lock(t, c, "x")) })
	})
}

// A grant whose answer was lost is released when the caller gives up.
func TestNoOrphanAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		a, b := client(t, conn, nil), client(t, store, nil)
		heal := conn.DropReplies()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Mutex("x").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		heal()
		within(t, "the next Lock", 0, 2*time.Second, func() { lock(t, b, "x") })
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		held := lock(t, b, "held")
		l := lock(t, a, "x")
		waiting := make(chan error)
		go func() { _, err := a.Mutex("held").Lock(t.Context()); waiting <- err }()
		synctest.Wait()
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a wait when the client was closed: %v", err)
		}
		if err := l.Err(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("a lease when the client was closed: %v", err)
		}
		if _, err := a.Mutex("y").Lock(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := b.Mutex("x").TryLock(t.Context()); err != nil {
			t.Error(err)
		}
		if r, _ := b.Inspect(t.Context(), "held"); r.Waiting != 0 {
			t.Errorf("%d waiting", r.Waiting)
		}
		release(t, held)
	})
}

// Close is bounded by its context also when the store does not answer.
func TestCloseWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c, other := client(t, conn, nil), lock(t, client(t, conn, nil), "held")
		for _, name := range []string{"x", "y"} {
			lock(t, c, name)
		}
		waiting := make(chan error)
		go func() { _, err := c.Mutex("held").Lock(t.Context()); waiting <- err }()
		synctest.Wait()
		heal := conn.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		within(t, "Close", time.Second, time.Second+10*time.Millisecond, func() {
			if err := c.Close(ctx); err == nil {
				t.Error("Close succeeded without the store")
			}
		})
		if err := <-waiting; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a wait when the client was closed: %v", err)
		}
		heal()
		release(t, other)
	})
}

// Without a deadline, Close ends when everything that the client had at the store has expired.
func TestCloseWithoutStoreOrDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		lock(t, c, "x")
		conn.Cut()
		within(t, "Close", ttl, ttl+10*time.Millisecond, func() {
			err := c.Close(context.Background())
			if !errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close without the store: %v; want ErrUncertain, and no context's", err)
			}
		})
	})
}

// A store does not answer when a client opens. New reports how long it has waited, and names no
// deadline, which nobody has set.
func TestNewWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hooks{Backend: memlock.New()}
		h.opening = func(ctx context.Context) error { <-ctx.Done(); return unanswered(ctx) }
		_, err := holdfast.New(t.Context(), h, nil)
		if !errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "no answer within 15s") || strings.Contains(err.Error(), "deadline") {
			t.Errorf("%v; want ErrUncertain with the time", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := holdfast.New(ctx, h, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline of the caller's: %v; want its error", err)
		}
	})
}

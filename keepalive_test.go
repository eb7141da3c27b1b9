package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

var errStore = errors.New("the store is out for lunch")

func isLost(t testing.TB, err error, reason holdfast.Reason) {
	t.Helper()
	var e *holdfast.Error
	if !errors.Is(err, holdfast.ErrLost) || !errors.As(err, &e) || e.Reason != reason {
		t.Errorf("got %v; want ErrLost, %s", err, reason)
	}
}

// A holder that is cut off learns of its loss TTL - margin after it sent its last proof. The waiter
// gets the lock later, when the store's TTL has passed.
func TestLossIsReportedBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		conn := drivertest.Faulty(store)
		a, b := client(t, conn, nil), client(t, store, nil)
		start := time.Now()
		l := lock(t, a, "x")
		conn.Cut()
		got := make(chan time.Duration)
		go func() {
			_, err := b.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- time.Since(start)
		}()
		<-l.Context(t.Context()).Done()
		if d := time.Since(start); d != 9*time.Second {
			t.Errorf("lost after %v; want 9s, TTL less a tenth", d)
		}
		isLost(t, l.Err(), holdfast.ReasonUnreachable)
		if d := <-got; d < ttl || d > ttl+100*time.Millisecond {
			t.Errorf("the next holder got the lock after %v; want about 10s", d)
		}
	})
}

// Trust in a lease counts from when a renewal was sent. A late answer proves less, and a missing
// answer nothing.
func TestSlowRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		h := &hooks{Backend: memlock.New()}
		h.renew = func(ctx context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			switch calls.Add(1) {
			case 1: // at 10/3 s: the answer takes 3 s
				ch, err := next()
				time.Sleep(3 * time.Second)
				return ch, err
			default: // never answered
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		c := client(t, h, nil)
		start := time.Now()
		l := lock(t, c, "x")
		<-l.Done()
		want := ttl/3 + 9*time.Second // from when the one answered renewal was sent
		if d := time.Since(start); d != want {
			t.Errorf("lost after %v; want %v", d, want)
		}
	})
}

// The client goes on renewing after failed renewals.
func TestFailedRenewalsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		h := &hooks{Backend: memlock.New()}
		h.renew = func(_ context.Context, holds []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change,
			error) {
			switch n := calls.Add(1); {
			case n%4 == 0:
				return next()
			case n%4 == 1: // some are not proven
				var ch []driver.Change
				for i := range holds {
					ch = append(ch, driver.Change{Index: i, State: driver.Unknown})
				}
				return ch, nil
			default:
				return nil, errStore
			}
		}
		c := client(t, h, nil)
		l := lock(t, c, "x")
		time.Sleep(10 * time.Minute)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		release(t, l)
		before := calls.Load()
		time.Sleep(time.Minute)
		if n := calls.Load() - before; n > 80 {
			t.Errorf("%d renewals a minute with nothing held; want at most one try a second", n)
		}
	})
}

// Nothing is renewed after release.
func TestNoRenewalAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hooks{Backend: memlock.New()}
		h.renew = func(_ context.Context, holds []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change,
			error) {
			if len(holds) > 0 {
				t.Errorf("renewed %v", holds)
			}
			return next()
		}
		c := client(t, h, nil)
		for range 100 {
			l := lock(t, c, "x")
			time.Sleep(ttl / 7 / 100)
			release(t, l)
		}
		time.Sleep(time.Minute)
	})
}

// A release is repeated until the store has answered.
func TestReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var cut atomic.Bool
		h := &hooks{Backend: store}
		h.release = func(_ context.Context, _ driver.Hold, next func() error) error {
			if cut.Load() {
				return errStore
			}
			return next()
		}
		a, b := client(t, h, nil), client(t, store, nil)
		l := lock(t, a, "x")
		cut.Store(true)
		err := l.Release()
		cut.Store(false)
		if !errors.Is(err, holdfast.ErrUncertain) || !errors.Is(err, errStore) {
			t.Errorf("Release: %v; want ErrUncertain and the cause", err)
		}
		if err := l.Release(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("second Release: %v; want ErrReleased", err)
		}
		within(t, "the next Lock", 0, time.Second, func() { lock(t, b, "x") })
	})
}

// Release of a lost lease still frees the name at the store.
func TestReleaseOfALostLeaseFreesTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store}
		var cutOff atomic.Bool
		h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			if cutOff.Load() {
				return nil, errStore
			}
			return next()
		}
		a, b := client(t, h, nil), client(t, store, nil)
		l := lock(t, a, "x")
		cutOff.Store(true)
		<-l.Done()
		isLost(t, l.Release(), holdfast.ReasonUnreachable)
		within(t, "the next Lock", 0, 100*time.Millisecond, func() { lock(t, b, "x") })
		isLost(t, l.Release(), holdfast.ReasonUnreachable)
	})
}

// Fifty locks are handed over after long waits, at any time within the renewal interval: no lease
// is expired at once.
func TestHandOversAfterLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, nil), client(t, store, nil)
		l := lock(t, a, "x")
		for i := range 50 {
			got := make(chan *holdfast.Lease)
			go func() {
				l, err := b.Mutex("x").Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			time.Sleep(time.Duration(i+1) * 777 * time.Millisecond)
			release(t, l)
			if l = <-got; l == nil || l.Err() != nil {
				t.Fatalf("hand-over %d: %v", i, l.Err())
			}
			time.Sleep(ttl)
			if err := l.Err(); err != nil {
				t.Fatalf("hand-over %d, a TTL later: %v", i, err)
			}
			a, b = b, a
		}
	})
}

// When the session is over, every lease is lost, and the client opens another session.
func TestSessionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		first := make(chan struct{})
		opened := 0
		h := &hooks{Backend: store, open: func() <-chan struct{} {
			if opened++; opened == 1 {
				return first
			}
			return nil
		}}
		a, b := client(t, h, nil), client(t, store, nil)
		l := lock(t, a, "x")
		other := lock(t, b, "y")
		waiting := make(chan error)
		go func() { _, err := a.Mutex("y").Lock(t.Context()); waiting <- err }()
		synctest.Wait()
		close(first)
		<-l.Done()
		isLost(t, l.Err(), holdfast.ReasonSession)
		synctest.Wait()
		release(t, other)
		if err := <-waiting; err != nil {
			t.Errorf("a wait over the end of the session: %v", err)
		}
		within(t, "Lock in the new session", 0, ttl+time.Second, func() { lock(t, a, "x") })
		if opened != 2 {
			t.Errorf("%d sessions opened; want 2", opened)
		}
	})
}

// stingy grants 3/5 of the TTL that is asked for.
type stingy struct {
	driver.Backend
	asked []time.Duration
}

func (b *stingy) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	b.asked = append(b.asked, cfg.TTL)
	cfg.TTL = cfg.TTL * 3 / 5
	return b.Backend.Open(ctx, cfg)
}

// The client asks each session for the configured TTL, even if the last one was granted less.
// Leases last for what the current session was granted.
func TestSessionLostAsksForTheSameTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &stingy{Backend: memlock.New()}
		lost := make(chan chan struct{}, 3)
		c := client(t, &hooks{Backend: b, open: func() <-chan struct{} {
			ch := make(chan struct{})
			lost <- ch
			return ch
		}}, nil)
		for range 2 {
			l := lock(t, c, "x")
			if c.TTL() != ttl*3/5 {
				t.Errorf("the TTL is %v; want %v", c.TTL(), ttl*3/5)
			}
			close(<-lost)
			<-l.Done()
			isLost(t, l.Err(), holdfast.ReasonSession)
			synctest.Wait()
		}
		if want := []time.Duration{ttl, ttl, ttl}; !slices.Equal(b.asked, want) {
			t.Errorf("sessions were asked for with %v; want %v", b.asked, want)
		}
	})
}

// One lease lasts a day.
func TestLongLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		l := lock(t, c, "x")
		time.Sleep(24 * time.Hour)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		release(t, l)
	})
}

// A store that takes a quarter of the TTL to answer is usable. With one that is so slow that no
// grant can be relied on, Lock returns an error.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 200 * time.Millisecond
		var delay atomic.Int64 // of each answer
		delay.Store(int64(50 * time.Millisecond))
		slowly := func() { time.Sleep(time.Duration(delay.Load() / 2)) }
		h := &hooks{Backend: memlock.New()}
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			slowly()
			defer slowly()
			return next()
		}
		h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			slowly()
			defer slowly()
			return next()
		}
		c := client(t, h, &holdfast.Config{TTL: ttl})
		for range 20 { // at different times within the renewal interval
			l := lock(t, c, "x")
			time.Sleep(5 * ttl)
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			release(t, l)
			time.Sleep(7 * time.Millisecond)
		}
		delay.Store(int64(150 * time.Millisecond))
		within(t, "Lock", 0, time.Second, func() {
			if _, err := c.Mutex("y").Lock(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("Lock: %v; want ErrUnavailable", err)
			}
		})
	})
}

// The time limit for a silent store begins with its silence, not with the wait.
func TestOutageAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store}
		var out atomic.Bool
		asked := 0
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			if out.Load() {
				asked++
				return driver.Reply{}, errStore
			}
			return next()
		}
		a, b := client(t, store, nil), client(t, h, nil)
		l := lock(t, a, "x", holdfast.MinHold(10*time.Minute))
		got := make(chan error)
		go func() { _, err := b.Mutex("x").Lock(t.Context()); got <- err }()
		time.Sleep(5 * time.Minute)
		out.Store(true)
		release(t, l) // the name is kept, and the waiter learns when to ask again
		time.Sleep(2 * time.Second)
		out.Store(false)
		if err := <-got; err != nil {
			t.Errorf("Lock, after a wait of 5 minutes and an outage of 2 seconds: %v", err)
		}
		if asked == 0 {
			t.Error("nothing was asked during the outage")
		}
	})
}

package holdfast_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// silent returns a store that h stops hearing from once silence is set: a frozen or dead holder.
func silent(store driver.Backend) (h *hooks, silence *atomic.Bool) {
	silence = new(atomic.Bool)
	h = &hooks{Backend: store}
	lost := func() error { return driver.ErrUnavailable }
	h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
		if silence.Load() {
			return nil, lost()
		}
		return next()
	}
	h.release = func(_ context.Context, _ driver.Hold, next func() error) error {
		if silence.Load() {
			return lost()
		}
		return next()
	}
	h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
		if silence.Load() {
			return driver.Reply{}, lost()
		}
		return next()
	}
	h.cancel = func(_ string, next func() error) error {
		if silence.Load() {
			return lost()
		}
		return next()
	}
	return h, silence
}

// The store ends a lease with MaxHold soon after it, even if it never hears from the holder again:
// within a tenth if MaxHold is short, else within half a TTL.
func TestMaxHoldOfADeadHolder(t *testing.T) {
	for _, test := range []struct {
		hold, most time.Duration
		waits      bool
	}{
		{2 * time.Second, 2200 * time.Millisecond, false},
		{2 * time.Second, 2200 * time.Millisecond, true},
		{5 * time.Second, 5500 * time.Millisecond, true},
		{100 * time.Millisecond, time.Second, false},
		{25 * time.Second, 30 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h, silence := silent(store)
			a, b := client(t, h, &holdfast.Config{TTL: ttl}), client(t, store, nil)
			var first *holdfast.Lease
			if test.waits {
				first = lock(t, b, "x")
			}
			got := make(chan *holdfast.Lease)
			go func() { got <- lock(t, a, "x", holdfast.MaxHold(test.hold)) }()
			if test.waits {
				time.Sleep(33 * time.Second) // the place stays, although it is short
				release(t, first)
			}
			l := <-got
			left := l.Left()
			if test.hold > ttl {
				left = test.hold
			} else if left < test.hold-test.hold/100 || left > test.hold {
				t.Errorf("%v left of a hold of %v", left, test.hold)
			}
			if test.hold < ttl {
				silence.Store(true)
			} else {
				time.AfterFunc(test.hold-time.Second, func() { silence.Store(true) })
			}
			within(t, "the name", left, test.most+10*time.Millisecond, func() { release(t, lock(t, b, "x")) })
			isLost(t, l.Err(), holdfast.ReasonMaxHold)
			silence.Store(false)
		})
	}
}

// A stranger's push does not become a short lease: the store confirms it first.
func TestForgedGrantOfAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		held := lock(t, client(t, store, nil), "x")
		h := &hooks{Backend: store}
		var forged atomic.Bool
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			reply, err := next()
			if reply.Wake != nil && !forged.Swap(true) {
				wake := make(chan uint64, 1)
				wake <- held.Token() + 1
				reply.Wake = wake
			}
			return reply, err
		}
		got := taking(t, h, holdfast.MaxHold(time.Second))
		time.Sleep(time.Minute)
		select {
		case l := <-got:
			t.Fatalf("granted with token %d beside the holder", l.Token())
		default:
		}
		release(t, held)
		release(t, <-got)
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := client(t, store, &holdfast.Config{TTL: ttl}), client(t, store, nil)
		ends := func(what string, l *holdfast.Lease, after time.Duration) {
			t.Helper()
			within(t, what, after-after/50, after+time.Millisecond, func() { <-l.Done() })
			isLost(t, l.Err(), holdfast.ReasonMaxHold)
			within(t, what+": the name", 0, time.Millisecond, func() { release(t, lock(t, b, "x")) })
			if err := l.Extend(time.Second); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%s: Extend of the lost lease: %v", what, err)
			}
		}
		extend := func(l *holdfast.Lease, d time.Duration) {
			t.Helper()
			if err := l.Extend(d); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []time.Duration{time.Second, 3 * time.Second, 25 * time.Second, time.Hour} {
			for _, first := range []time.Duration{2 * time.Second, 8 * time.Second, time.Minute} {
				l := lock(t, a, "x", holdfast.MaxHold(first))
				time.Sleep(time.Second)
				extend(l, d)
				ends("extended", l, d)
			}
			l := lock(t, a, "x")
			extend(l, time.Minute)
			extend(l, d)
			ends("without MaxHold", l, d)
		}
		l := lock(t, a, "x", holdfast.MaxHold(2*time.Second))
		for range 20 { // a watchdog of the application's own
			time.Sleep(time.Second)
			extend(l, 2*time.Second)
		}
		for _, d := range []time.Duration{0, -1} {
			if err := l.Extend(d); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("Extend(%v): %v", d, err)
			}
		}
		inner, err := a.Mutex("x", holdfast.Reentrant()).Lock(l.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		extend(inner, time.Second)
		within(t, "a borrowed lease", time.Second, time.Second, func() { <-inner.Done() })
		release(t, l)
		if err := l.Extend(time.Second); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Extend of a released lease: %v", err)
		}
	})
}

// An extension that the store refuses, or does not answer, changes nothing here. One that it denies
// ends the lease.
func TestExtendWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h, silence := silent(store)
		a := client(t, h, &holdfast.Config{TTL: ttl})
		l := lock(t, a, "x", holdfast.MaxHold(5*time.Second))
		silence.Store(true)
		before := l.Left()
		if err := l.Extend(time.Minute); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("Extend: %v; want ErrUnavailable", err)
		}
		if left := l.Left(); left > before {
			t.Errorf("%v left; before the extension that failed %v", left, before)
		}
		silence.Store(false)
		if err := a.Break(t.Context(), "x", l.Token(), ""); err != nil {
			t.Fatal(err)
		}
		err := l.Extend(time.Minute)
		isLost(t, err, holdfast.ReasonBroken)
		isLost(t, l.Err(), holdfast.ReasonBroken)
	})
}

// The longest time is no end, not one in the past.
func TestMaxHoldForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, margin := range []time.Duration{0, ttl / 2} {
			c := client(t, memlock.New(), &holdfast.Config{TTL: ttl, Margin: margin})
			l := lock(t, c, "x", holdfast.MaxHold(math.MaxInt64))
			inner := take(t)(c.Mutex("x", holdfast.Reentrant(), holdfast.MaxHold(math.MaxInt64)).Lock(l.Context(t.Context())))
			time.Sleep(3 * ttl)
			if err := errors.Join(l.Err(), inner.Err(), l.Extend(math.MaxInt64), inner.Extend(math.MaxInt64)); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * ttl)
			if err := errors.Join(l.Err(), inner.Err()); err != nil {
				t.Error(err)
			}
			release(t, l)
		}
	})
}

// A store may count in microseconds. It is asked for whole ones, so that it keeps no lease for less
// time than the client trusts it.
func TestLeasesOfWholeMicroseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := func(what string, d time.Duration) {
			if d == 0 || d%time.Microsecond != 0 {
				t.Errorf("%s asked for a lease of %v", what, d)
			}
		}
		h := &hooks{Backend: memlock.New()}
		h.acquire = func(_ context.Context, r *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			check("Acquire", r.Lease)
			return next()
		}
		h.renew = func(_ context.Context, holds []driver.Hold, next func() ([]driver.Change, error)) (
			[]driver.Change, error) {
			for _, h := range holds {
				check("Renew", h.Lease)
			}
			return next()
		}
		l := lock(t, client(t, h, &holdfast.Config{TTL: ttl, Margin: 1}), "x", holdfast.MaxHold(4*time.Second+333))
		time.Sleep(ttl/3 + 777)
		if err := l.Extend(5*time.Second + 1); err != nil {
			t.Fatal(err)
		}
		release(t, l)
	})
}

// HandOff keeps a lock whose lease MaxHold would have ended soon: the giver renews the grant at once,
// also if a renewal without it is under way.
func TestHandOffOfAShortLease(t *testing.T) {
	for _, test := range []struct {
		hold, at time.Duration
		busy     bool // a renewal is under way
	}{
		{2 * time.Second, time.Second, false},
		{2 * time.Second, time.Second, true},
		{26 * time.Second, 25900 * time.Millisecond, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := &hooks{Backend: store}
			var slow atomic.Bool
			h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) (
				[]driver.Change, error) {
				changes, err := next()
				if slow.Swap(false) {
					time.Sleep(3 * time.Second)
				}
				return changes, err
			}
			giver, other := client(t, h, &holdfast.Config{TTL: ttl}), client(t, store, nil)
			if test.busy {
				slow.Store(true)
				time.Sleep(ttl/3 - test.at + 100*time.Millisecond)
			}
			l := lock(t, giver, "x", holdfast.MaxHold(test.hold))
			time.Sleep(test.at)
			ticket, _, err := l.HandOff()
			if err != nil {
				t.Fatal(err)
			}
			for range 30 {
				time.Sleep(ttl / 10)
				refused(t, holdfast.ErrHeld)(other.Mutex("x").TryLock(t.Context()))
			}
			got := take(t)(other.Adopt(t.Context(), ticket))
			if got.Token() != l.Token() {
				t.Errorf("adopted with token %d; want %d", got.Token(), l.Token())
			}
			release(t, got)
		})
	}
}

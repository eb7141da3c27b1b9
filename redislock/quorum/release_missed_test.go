package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// down is a server that nothing reaches.
type down struct{ member }

func (down) Ask(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error) {
	return driver.Reply{}, 0, driver.ErrUnavailable
}

func (down) Raise(context.Context, driver.Hold, uint64, time.Duration) (uint64, time.Duration, error) {
	return 0, 0, driver.ErrUnavailable
}

func (down) Pass(context.Context, driver.Hold, time.Duration, uint64) error {
	return driver.ErrUnavailable
}

func (down) Cancel(context.Context, string, string) error { return driver.ErrUnavailable }

func (down) Withdraw(context.Context, string, string, uint64) (uint64, error) {
	return 0, driver.ErrUnavailable
}

// TestCancelAfterTheMinimumIsOver: server 2 is down, and servers 0 and 1 have granted a request with
// a minimum hold. That is over when the request is released. Server 0 does it and server 1 misses it: the release
// succeeds, because the lease is proven. The caller's cancellations reach server 1. They must end the grant
// there, because it keeps nothing any more. Otherwise nobody gets the name before the lease has expired.
func TestCancelAfterTheMinimumIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		put(s.endpoints[2], down{s.endpoints[2].at()})
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: 100 * time.Millisecond}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		time.Sleep(time.Second) // the minimum is over
		put(s.endpoints[1], &missing{once: true, member: s.endpoints[1].at()})
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
			t.Fatal(err)
		}
		for _, pause := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second} {
			time.Sleep(pause)
			if err := s.Cancel(t.Context(), "x", "a"); err != nil { // as Lease.cancelLate
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		if n := w.has("a"); n > 0 {
			t.Errorf("%d servers still have the grant, for nobody", n)
		}
		began := time.Now()
		for {
			reply, err := s.Acquire(t.Context(), &driver.Request{ID: "b", Name: "x",
				Mode: driver.Exclusive, N: 1, Wait: true})
			if err == nil && reply.Token != 0 {
				break
			}
			if time.Since(began) > 2*s.ttl {
				t.Fatal("never granted", reply, err)
			}
			time.Sleep(time.Second)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the next request waited for %v", d)
		}
	})
}

// silentAsk is a server that no request reaches yet. Cancellations do.
type silentAsk struct{ member }

func (silentAsk) Ask(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error) {
	return driver.Reply{}, 0, driver.ErrUncertain
}

// TestLateExchangeAfterAMissedRelease: nobody has answered the first exchange. Servers 0 and 1 have
// granted the second; server 2 has not. The request is released, and server 1 misses that. When the minimum hold
// is over, the first exchange arrives at servers 1 and 2. The cancellations that follow must end both
// grants, because they keep nothing.
func TestLateExchangeAfterAMissedRelease(t *testing.T) {
	for _, held := range []time.Duration{30 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(held.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { lateExchange(t, held) }) })
	}
}

func lateExchange(t *testing.T, held time.Duration) {
	w, s := simulated(3)
	t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
	sim := s.endpoints[2].at().(*simMember)
	put(s.endpoints[0], &failsOnce{member: s.endpoints[0].at()})
	put(s.endpoints[1], &failsOnce{member: s.endpoints[1].at()})
	put(s.endpoints[2], silentAsk{sim})
	req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: 100 * time.Millisecond}
	if reply, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUncertain) {
		t.Fatal(reply, err)
	}
	synctest.Wait() // two failures are enough for the answer
	reply, err := s.Acquire(t.Context(), req)
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	time.Sleep(held)
	put(s.endpoints[1], &missing{once: true, member: s.endpoints[1].at()})
	if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	cancelAt := func(d time.Duration) {
		time.Sleep(time.Until(released.Add(d)))
		if err := s.Cancel(t.Context(), "x", "a"); err != nil {
			t.Error(err)
		}
	}
	cancelAt(0)
	cancelAt(20 * time.Millisecond)
	cancelAt(220 * time.Millisecond)
	time.Sleep(time.Until(released.Add(4 * time.Second)))
	w.mu.Lock() // the first exchange arrives, as Ask in the server's script
	for _, v := range w.servers[1:] {
		v.advance(0)
		if v.token != 0 {
			v.end = v.till(v.end, 0)
		} else {
			end := v.till(time.Time{}, 0)
			v.give(simPlace{"a", 0, 1, end, 0, sim}, end, 0)
		}
	}
	w.mu.Unlock()
	cancelAt(5220 * time.Millisecond) // the last repeat, after the limit of an exchange
	time.Sleep(time.Second)
	if n := w.has("a"); n > 0 {
		for w.has("a") >= s.b.need() {
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%d of 3 servers had a grant for nobody, a majority until %v after the release (TTL %v)", n,
			time.Since(released), s.ttl)
	}
}

// TestRepeatedReleaseUnderAnotherToken: server 2 has given the grant a smaller token than the others. The first
// release is uncertain: server 0 does it, server 1 does it without an answer, and server 2 misses it. The repeated
// release names to each server the token that the grant has there, so server 2 does it as well.
func TestRepeatedReleaseUnderAnotherToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		r := s.find("a")
		r.mu.Lock()
		r.votes[2].token--
		r.mu.Unlock()
		w.mu.Lock()
		w.servers[2].token--
		w.mu.Unlock()
		put(s.endpoints[1], &doneOnce{member: s.endpoints[1].at()})
		m := &missing{once: true, member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		if err := s.Release(t.Context(), h, 0); !errors.Is(err, driver.ErrUncertain) {
			t.Fatal(err)
		}
		_ = s.Release(t.Context(), h, 0) // as releaser
		if n := w.has("a"); n != 0 {
			t.Errorf("%d servers have not done the release", n)
		}
		if n := m.cancelled.Load(); n != 0 {
			t.Errorf("%d cancellations of a grant whose minimum hold is not over", n)
		}
	})
}

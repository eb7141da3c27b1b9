package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// deaf is a server that cancellations reach long after their sender has given them up.
type deaf struct{ member }

func (deaf) Cancel(context.Context, string, string) error { return driver.ErrUncertain }

// TestLateCancellation: a server has not answered a cancellation of a request that goes on, and its
// connection may deliver it for as long as TCP tries. Until then the server is not asked again, because
// the cancellation would end that grant. After that it is.
func TestLateCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		defer func() { _, _ = s.Close(context.Background()), s.b.Close() }()
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		r := s.find("a")
		last := r.order[2]
		p, v := s.endpoints[last], w.servers[last]
		part := member(deaf{p.at()})
		p.here.Store(&part)
		r.mu.Lock()
		r.votes[last].sent = s.stamp.Add(1) // in a try before this one
		r.mu.Unlock()
		s.withdraw(r, p, func(error) {})
		synctest.Wait()
		p.takePending()
		p.slow.Store(0) // a ping was answered
		begin := time.Now()
		for asked := false; !asked; {
			time.Sleep(modelTTL / 3)
			if _, err := s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a", Token: reply.Token}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			w.mu.Lock()
			asked = v.token != 0
			w.mu.Unlock()
			switch past := time.Since(begin); {
			case asked && past < redislock.MostLate:
				t.Errorf("asked again after %v", past)
			case !asked && past > 2*redislock.MostLate:
				t.Fatal("never asked again")
			}
		}
	})
}

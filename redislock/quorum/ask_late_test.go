package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestAskedAfterRelease: a bare majority has granted a request, and a goroutine is about to ask the
// other server. Before it does, the grant is released. No server has a grant in the end.
func TestAskedAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		defer func() { _, _ = s.Close(context.Background()), s.b.Close() }()
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1})
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		r := s.find("a")
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
			t.Fatal(err)
		}
		s.askOne(r, s.endpoints[r.order[2]], s.stamp.Add(1), s.clock.propose())
		time.Sleep(s.ttl / 10)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, v := range w.servers {
			if v.token != 0 {
				t.Errorf("server %d: %v has token %d", i, v.holder, v.token)
			}
		}
	})
}

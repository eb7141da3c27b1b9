package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/driver"
)

// unreached is a server that the first cancellations do not reach.
type unreached struct {
	member
	fails atomic.Int32
}

func (a *unreached) Cancel(ctx context.Context, name, id string) error {
	if a.fails.Add(-1) >= 0 {
		return driver.ErrUnavailable
	}
	return a.member.Cancel(ctx, name, id)
}

// TestCloseRepeatsCancel: a server was away when a request was cancelled, and the connection to it has
// to be made again when the session closes. Close cancels the request there.
func TestCloseRepeatsCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holding(t, 3)
		r := s.find(h.ID)
		last := r.order[2]
		p, v := s.endpoints[last], w.servers[last]
		renews(t, s, p, h)
		a := &unreached{member: p.at()}
		a.fails.Store(2)
		here := member(a)
		p.here.Store(&here)
		if err := s.Cancel(t.Context(), h.Name, h.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if left := a.fails.Load(); left != 1 {
			t.Fatalf("%d failures left; want 1", left)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.isFree(t)
	})
}

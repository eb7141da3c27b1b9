package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// missing is a server that the release does not reach. It notes cancellations: in its script, one that
// comes while it has the grant ends that, and the minimum hold with it.
type missing struct {
	member
	cancelled atomic.Int32
}

func (m *missing) Pass(context.Context, driver.Hold, time.Duration, uint64) error {
	return driver.ErrUnavailable
}

func (m *missing) Cancel(ctx context.Context, name, id string) error {
	m.cancelled.Add(1)
	return m.member.Cancel(ctx, name, id)
}

// TestCancelAfterReleaseKeepsMinimum: one server misses the release of a grant with a minimum hold. It shall
// keep the name until that is over. A client whose first exchange was not answered cancels the request
// after its release has succeeded, because that exchange may still arrive. The minimum hold stays. The
// session cancels the request when it is over, or when the grant has expired everywhere.
func TestCancelAfterReleaseKeepsMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		for _, p := range s.endpoints {
			renews(t, s, p, h) // all have it
		}
		p := s.endpoints[2]
		m := &missing{member: p.at()}
		here := member(m)
		p.here.Store(&here)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.cancelled.Load(); n != 0 {
			t.Fatalf("the release itself cancelled it %d times", n)
		}
		if err := s.Cancel(t.Context(), "x", "a"); err != nil { // as Lease.cancelLate
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.cancelled.Load(); n != 0 {
			t.Errorf("%d cancellations of a grant whose minimum hold is not over", n)
		}
		time.Sleep(2*s.ttl + time.Second)
		if n := m.cancelled.Load(); n != 1 {
			t.Errorf("%d cancellations afterwards; want 1", n)
		}
	})
}

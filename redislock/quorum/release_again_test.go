package quorum

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// bareMajority is simulated, and a grant that only servers 0 and 1 have: nothing reaches server 2.
func bareMajority(t *testing.T, minimum time.Duration) (*world, *session, driver.Hold) {
	w, s := simulated(3)
	t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
	put(s.endpoints[2], down{s.endpoints[2].at()})
	reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1,
		MinHold: minimum})
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	return w, s, driver.Hold{Name: "x", ID: "a", Token: reply.Token}
}

// TestReleaseMissedWithinTheMinimum: the release comes shortly before the minimum hold is over, and server 1 misses
// it. The session repeats it there. Otherwise nobody gets the name before the lease has expired.
func TestReleaseMissedWithinTheMinimum(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		t.Run(fmt.Sprint("cancels ", cancels), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, h := bareMajority(t, 2*time.Second)
				time.Sleep(1900 * time.Millisecond)
				put(s.endpoints[1], &missing{once: true, member: s.endpoints[1].at()})
				if err := s.Release(t.Context(), h, 0); err != nil {
					t.Fatal(err)
				}
				if cancels { // as Lease.cancelLate
					if err := s.Cancel(t.Context(), "x", "a"); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(2 * time.Second)
				if n := w.has("a"); n > 0 {
					t.Errorf("%d servers have the grant, for nobody", n)
				}
			})
		})
	}
}

// TestReleaseMissedKeepsTheMinimum: the release that is repeated ends the lease, and not the minimum hold.
func TestReleaseMissedKeepsTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := bareMajority(t, 20*time.Second)
		put(s.endpoints[1], &missing{once: true, member: s.endpoints[1].at()})
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := w.has("a"); n > 0 {
			t.Errorf("%d servers have the grant, for nobody", n)
		}
		w.mu.Lock()
		for i, v := range w.servers[:2] {
			if v.advance(0); v.token == 0 {
				t.Errorf("server %d does not keep the name", i)
			}
		}
		w.mu.Unlock()
		time.Sleep(16 * time.Second)
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "b", Name: "x", Mode: driver.Exclusive, N: 1})
		if err != nil || reply.Token == 0 {
			t.Error("after the minimum hold:", reply, err)
		}
	})
}

// pending returns how many cancellations p must still receive.
func pending(p *endpoint) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pendingCancels)
}

// TestIdleSessionCancels: server 1 misses a release and much else, and the session then asks it for nothing. It
// repeats the cancellations by itself, so the name is soon free: server 2 is away, and others need server 1.
func TestIdleSessionCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := bareMajority(t, 0)
		p := s.endpoints[1]
		put(p, &missing{once: true, member: p.at()})
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		for i := range 3 * flushAtOnce {
			s.cancelLater(p, "y", fmt.Sprint(i))
		}
		time.Sleep(redial + 50*time.Millisecond)
		if n := w.has("a"); n > 0 || pending(p) > 0 {
			t.Errorf("%d servers have the grant, for nobody; %d cancellations are pending", n, pending(p))
		}
		s.cancelLater(p, "y", "later")
		time.Sleep(redial + 50*time.Millisecond)
		if pending(p) > 0 {
			t.Error("a later cancellation is pending")
		}
	})
}

// TestAwayServerGetsOneCancellation: a server that cannot be reached gets one of many cancellations at a time, and
// not more than one a second. When it is back, it gets all of them at once.
func TestAwayServerGetsOneCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		p := s.endpoints[1]
		here := p.at()
		m := &missing{member: down{here}}
		put(p, m)
		p.slow.Store(1)
		for i := range 100 {
			s.cancelLater(p, "x", fmt.Sprint(i))
		}
		time.Sleep(10*time.Second + redial)
		if n := m.cancelled.Load(); n < 10 || n > 14 || pending(p) != 100 {
			t.Errorf("%d cancellations sent in ten seconds, %d of 100 are pending", n, pending(p))
		}
		put(p, here)
		time.Sleep(1100 * time.Millisecond)
		if n := pending(p); n > 0 {
			t.Errorf("%d cancellations are pending", n)
		}
	})
}

// noting is a server that notes which requests were cancelled.
type noting struct {
	member
	mu  sync.Mutex
	ids map[string]bool
}

func (m *noting) Cancel(_ context.Context, _, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids[id] = true
	return nil
}

// TestCloseBesidePendingCancellations: Close comes while pending cancellations are about to be sent. The server
// gets each of them.
func TestCloseBesidePendingCancellations(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			_, s := simulated(3)
			p := s.endpoints[1]
			m := &noting{member: p.at(), ids: map[string]bool{}}
			put(p, m)
			for i := range flushAtOnce {
				s.cancelLater(p, "x", fmt.Sprint(i))
			}
			time.Sleep(redial)
			_ = s.Close(context.Background())
			_ = s.b.Close()
			if len(m.ids) != flushAtOnce {
				t.Errorf("the server got %d of %d cancellations", len(m.ids), flushAtOnce)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestLateFailureAfterADoneRelease: server 2 has done the release, and then an earlier exchange with it fails.
// That may arrive later, so the session cancels the request there.
func TestLateFailureAfterADoneRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, h := hanging(t)
		m.once = true
		m.passes.Store(1) // it misses nothing
		close(m.pass)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // the exchange has its time limit
		_, _ = s.Renew(t.Context(), nil)
		time.Sleep(100 * time.Millisecond)
		if m.cancelled.Load() == 0 {
			t.Error("server 2 got no cancellation")
		}
	})
}

// TestReleaseMissedAfterTheLease: the lease is over at servers 0 and 1, and the minimum hold is not. Server 2 misses
// the release. It keeps the name, too: a cancellation would end its minimum hold.
func TestReleaseMissedAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		w.mu.Lock()
		w.servers[0].end, w.servers[1].end = time.Now(), time.Now()
		w.mu.Unlock()
		m := &missing{once: true, member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		if err := s.Release(t.Context(), h, 0); !driver.IsOver(err) {
			t.Fatal(err)
		}
		_ = s.Cancel(t.Context(), h.Name, h.ID) // as Lease.cancelLate
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if v := w.servers[2]; m.cancelled.Load() > 0 || v.held() || !v.kept.After(time.Now()) {
			t.Errorf("%d cancellations; held: %v; kept until %v", m.cancelled.Load(), v.held(), v.kept)
		}
	})
}

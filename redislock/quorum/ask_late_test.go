package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestAskedAfterRelease: a bare majority has granted a request, and a goroutine is about to ask the
// other server. Before it does, the grant is released. No server has a grant in the end.
func TestAskedAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holding(t, 3)
		r := s.find(h.ID)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		s.askOne(r, s.endpoints[r.order[2]], s.stamp.Add(1), s.clock.propose())
		for _, v := range w.servers {
			v.isFree(t)
		}
	})
}

// renewedFirst is a server that gets its first renewal before any request, and answers it later.
type renewedFirst struct {
	member
	first   sync.Once
	renewed chan struct{}
}

func (m *renewedFirst) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	<-m.renewed
	return m.member.Ask(ctx, req, propose)
}

func (m *renewedFirst) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	changes, err := m.member.Renew(ctx, holds)
	m.first.Do(func() {
		close(m.renewed)
		time.Sleep(answersAfter)
	})
	return changes, err
}

// TestAskedDuringRenewal: a bare majority has granted a request. The last server is asked for the grant, and a
// renewal overtakes that. Its answer, that the server has no such grant, comes after the grant. Meanwhile another
// server dies. The last server counts: the next renewal succeeds.
func TestAskedDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holding(t, 3)
		r := s.find(h.ID)
		last := s.endpoints[r.order[2]]
		var here member = &renewedFirst{member: last.at(), renewed: make(chan struct{})}
		last.here.Store(&here)
		s.askOne(r, last, s.stamp.Add(1), s.clock.propose())
		w.mu.Lock()
		w.servers[r.order[0]].dead = true
		w.mu.Unlock()
		if changes, err := s.Renew(t.Context(), []driver.Hold{h}); err == nil {
			t.Errorf("Renew by one server: %+v", changes)
		}
		if changes, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Errorf("Renew by two servers: %+v, %v", changes, err)
		}
	})
}

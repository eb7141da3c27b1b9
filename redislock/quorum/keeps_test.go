package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// away is a server that cannot be reached.
type away struct{ member }

func (away) Ask(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error) {
	return driver.Reply{}, 0, driver.ErrUnavailable
}

// TestMostKeeps: however many names a server that is away should keep, only so many wait for it. It gets
// a cancellation of the others.
func TestMostKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 100
		_, s := simulated(3)
		p := s.endpoints[2]
		here := member(away{p.at()})
		p.here.Store(&here)
		now := s.clock.now()
		for i := range mostKeeps + more {
			id := fmt.Sprint(i)
			r := &request{driver: driver.Request{ID: id, Name: id, Mode: driver.Exclusive, N: 1}}
			pause := backoff.Pause{First: redial, Most: time.Second}
			s.keepAt(&keeping{r: r, until: now + 100*s.ttl, end: now + 10*s.ttl, pause: pause}, p)
		}
		synctest.Wait()
		p.mu.Lock()
		waiting, cancelled := p.keeps.Load(), len(p.pendingCancels)
		p.mu.Unlock()
		if waiting != mostKeeps || cancelled != more {
			t.Errorf("%d names wait, %d are cancelled", waiting, cancelled)
		}
		_ = s.Close(context.Background())
		_ = s.b.Close()
		if waiting := p.keeps.Load(); waiting != 0 {
			t.Errorf("%d names wait for a session that is closed", waiting)
		}
	})
}

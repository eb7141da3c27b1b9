package quorum

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// refusing is a server that nothing reaches: each connection is refused at once.
type refusing struct{ member }

func (refusing) Cancel(context.Context, string, string) error { return driver.ErrUnavailable }

func (refusing) Close(context.Context) error { return driver.ErrUnavailable }

// TestCloseBesideServersThatRefuse: many requests were given up while servers were away. Close does not try
// for long to cancel them there: each exchange fails at once.
func TestCloseBesideServersThatRefuse(t *testing.T) {
	for down := 1; down <= 2; down++ {
		t.Run(fmt.Sprint(down), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := simulated(3)
				for _, p := range s.endpoints[3-down:] {
					put(p, refusing{p.at()})
					for i := range 1000 {
						s.cancelLater(p, "x", fmt.Sprint(i))
					}
				}
				began := time.Now()
				_ = s.Close(context.Background())
				closed := time.Since(began)
				_ = s.b.Close()
				if all := time.Since(began); all > time.Second {
					t.Errorf("Close took %v, and the backend's %v", closed, all-closed)
				}
			})
		})
	}
}

// remote is a server whose answers take 20 ms.
type remote struct {
	member
	taken atomic.Int32
}

func (m *remote) Cancel(ctx context.Context, _, _ string) error {
	if !backoff.Sleep(ctx, 20*time.Millisecond) {
		return driver.ErrUncertain
	}
	m.taken.Add(1)
	return nil
}

// TestCloseBesideAFarServer: a server 20 ms away has missed as many cancellations as the session
// remembers, and takes all of them.
func TestCloseBesideAFarServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(3)
		p := s.endpoints[2]
		m := &remote{member: p.at()}
		put(p, m)
		for i := range mostPending {
			s.cancelLater(p, "x", fmt.Sprint(i))
		}
		_ = s.Close(context.Background())
		_ = s.b.Close()
		if n := m.taken.Load(); n != mostPending {
			t.Errorf("%d of %d cancellations", n, mostPending)
		}
	})
}

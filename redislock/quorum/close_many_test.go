package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
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
					here := member(refusing{p.at()})
					p.here.Store(&here)
					for i := range 1000 {
						p.addPending(fmt.Sprint(i), s.pending("x"))
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

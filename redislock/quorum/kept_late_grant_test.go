package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestGrantBehindAKeptName is TestPlaceBehindAKeptName with a minimum hold that is over when the session's own first
// question comes to server 2. So that gives it a grant, and not a place. Nobody may be left with it.
func TestGrantBehindAKeptName(t *testing.T) {
	for _, late := range []time.Duration{220 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := three(t)
				req := &driver.Request{
					ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: 200 * time.Millisecond,
				}
				p := s.endpoints[newRequest(req, 3).order[2]]
				var begun atomic.Bool // the release
				m := &played{member: p.at()}
				m.ask = func(_ context.Context, n int32, do func() (driver.Reply, uint64, error)) (
					driver.Reply, uint64, error) {
					switch {
					case n == 1:
						time.Sleep(late)
					case !begun.Load(): // other questions do not get there
						return driver.Reply{}, 0, driver.ErrUnavailable
					}
					return do()
				}
				m.pass = func(n int32, do func() error) error {
					err := do()
					if n == 1 {
						time.Sleep(time.Second)
					}
					return err
				}
				put(p, m)
				s.noteContended("x", 0) // so all servers are asked
				reply, err := s.Acquire(t.Context(), req)
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				time.Sleep(20 * time.Millisecond)
				begun.Store(true)
				if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if n := w.has("a"); n > 0 {
					t.Errorf("%d servers have the grant, for nobody, long after the minimum hold", n)
				}
			})
		})
	}
}

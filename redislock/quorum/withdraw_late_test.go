package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// deferred is a server that the first withdrawal reaches only when arrive is called.
type deferred struct {
	member
	arrive func()
	deaf   bool // no Raise is answered
}

func (d *deferred) Raise(ctx context.Context, h driver.Hold, token uint64, lease time.Duration) (
	uint64, time.Duration, error) {
	if d.deaf {
		return 0, 0, driver.ErrUncertain
	}
	return d.member.Raise(ctx, h, token, lease)
}

func (d *deferred) Withdraw(ctx context.Context, name, id string, limit uint64) (uint64, error) {
	if d.arrive != nil {
		return d.member.Withdraw(ctx, name, id, limit)
	}
	d.arrive = func() { _, _ = d.member.Withdraw(context.Background(), name, id, limit) }
	return 0, driver.ErrUncertain
}

// TestLateWithdrawal: a server has not answered the withdrawal of a request that goes on. It answers the
// next one, and grants the request again. Then the first one arrives. It does not end that grant, also if
// the server's clock is so slow that it gives the grant a smaller token than the withdrawal has.
func TestLateWithdrawal(t *testing.T) {
	for what, c := range map[string]struct {
		ahead         time.Duration
		flaw          flaw
		deaf          bool
		counts, stays bool
	}{
		"":                            {0, none, false, true, true},
		"a slow clock":                {-time.Hour, none, false, true, true},
		"a slow clock, and no answer": {-time.Hour, none, true, false, false},
		"without limit":               {0, noLimit, false, true, false}, // this test can fail
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, h := holding(t, 3)
				r := s.find(h.ID)
				last := r.order[2]
				p, v := s.endpoints[last], w.servers[last]
				renews(t, s, p, h)
				w.mu.Lock()
				v.ahead, w.flaw = c.ahead, c.flaw
				w.mu.Unlock()
				d := &deferred{member: p.at(), deaf: c.deaf}
				here := member(d)
				p.here.Store(&here)
				s.withdraw(r, p, func(error) {})
				granted := func() bool {
					r.mu.Lock()
					defer r.mu.Unlock()
					return r.votes[last].state == granted
				}
				synctest.Wait()
				if d.arrive == nil || granted() {
					t.Fatal("the server was not asked to withdraw")
				}
				for range 20 {
					if renews(t, s, p, h); granted() {
						break
					}
				}
				if granted() != c.counts {
					t.Fatalf("the server counts: %v", !c.counts)
				}
				time.Sleep(modelTTL / 10) // no exchange is under way
				d.arrive()
				w.mu.Lock()
				defer w.mu.Unlock()
				if stays := v.token != 0; stays != c.stays {
					t.Errorf("the grant stays: %v", stays)
				}
			})
		})
	}
}

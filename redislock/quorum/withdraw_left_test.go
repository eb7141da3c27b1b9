package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// heldBy makes id the holder at a server.
func (v *simServer) heldBy(id string) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.give(simPlace{id: id, block: 1}, time.Now().Add(modelTTL), 0)
}

// contended is three simulated servers, of which two other requests have one each. The request has the
// last one, in the order of its name.
func contended(t *testing.T) (w *world, s *session, req driver.Request, order []int) {
	w, s = simulated(3)
	t.Cleanup(func() { _, _ = s.Close(context.Background()), s.b.Close() })
	req = driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
	order = newRequest(&req, 3).order
	w.servers[order[0]].heldBy("b")
	w.servers[order[1]].heldBy("c")
	return w, s, req, order
}

// isFree fails the test if the server has a grant after all exchanges.
func (v *simServer) isFree(t *testing.T) {
	t.Helper()
	time.Sleep(modelTTL / 10)
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	if v.token != 0 {
		t.Errorf("%v has token %d", v.holder, v.token)
	}
}

// crossed is a server whose answer to the first withdrawal comes just before or after the answer to the
// next request, or late.
type crossed struct {
	member
	withdrawn, asked atomic.Bool
	answer           chan struct{}
	after            bool
}

func (c *crossed) Withdraw(ctx context.Context, name, id string, limit uint64) (uint64, error) {
	stays, err := c.member.Withdraw(ctx, name, id, limit)
	if c.withdrawn.CompareAndSwap(false, true) {
		select {
		case <-c.answer:
		case <-time.After(4 * grace):
		}
	}
	return stays, err
}

func (c *crossed) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	reply, place, err := c.member.Ask(ctx, req, propose)
	if c.withdrawn.Load() && c.asked.CompareAndSwap(false, true) {
		if c.after {
			time.AfterFunc(time.Millisecond, func() { close(c.answer) })
			return reply, place, err
		}
		close(c.answer)
		time.Sleep(time.Millisecond)
	}
	return reply, place, err
}

// busy is a server that takes its time.
type busy struct{ member }

func (b busy) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	time.Sleep(grace / 5)
	return b.member.Ask(ctx, req, propose)
}

// TestAskedWhileWithdrawn: a request that does not wait has given a server back, without an answer, and
// asks for a majority again. Then another request has one. No server has the first request in the end.
func TestAskedWhileWithdrawn(t *testing.T) {
	for what, after := range map[string]bool{"answered before": false, "answered after": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, req, order := contended(t)
				q, p := s.endpoints[order[0]], s.endpoints[order[2]]
				slow := member(busy{q.at()})
				q.here.Store(&slow)
				c := &crossed{member: p.at(), answer: make(chan struct{}), after: after}
				here := member(c)
				p.here.Store(&here)
				time.AfterFunc(grace, func() { w.servers[order[1]].heldBy("b") })
				if reply, err := s.Acquire(t.Context(), &req); err != nil || reply.Token != 0 {
					t.Fatal(reply, err)
				}
				if !c.withdrawn.Load() {
					t.Fatal("the server was not asked to withdraw")
				}
				w.servers[order[2]].isFree(t)
			})
		})
	}
}

// TestUncountedGrant: a server's clock is so slow that its grant has a token that a withdrawal may still
// end, so the grant does not count. It is given back with the others.
func TestUncountedGrant(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, s, req, order := contended(t)
			w.servers[order[2]].ahead = -time.Hour
			if reply, err := s.Acquire(t.Context(), &req); err != nil || reply.Token != 0 {
				t.Fatal(reply, err)
			}
			w.servers[order[2]].isFree(t)
		})
	})
	t.Run("released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, s, h := holding(t, 3)
			r := s.find(h.ID)
			p, v := s.endpoints[r.order[2]], w.servers[r.order[2]]
			v.ahead = -time.Hour
			here := member(&deferred{member: p.at(), deaf: true})
			p.here.Store(&here)
			s.withdraw(r, p, func(error) {})
			granted := false
			for range 20 {
				renews(t, s, p, h)
				w.mu.Lock()
				granted = granted || v.token != 0
				w.mu.Unlock()
			}
			if !granted {
				t.Fatal("the server was not asked again")
			}
			if err := s.Release(t.Context(), h, 0); err != nil {
				t.Fatal(err)
			}
			v.isFree(t)
		})
	})
}

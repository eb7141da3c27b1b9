package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
)

// hasty is a server whose advice to ask again comes before the answer to the first request.
type hasty struct {
	member
	s       *session
	p       *endpoint
	advised atomic.Bool
}

func (h *hasty) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	reply, place, err := h.member.Ask(ctx, req, propose)
	if reply.Wake != nil && h.advised.CompareAndSwap(false, true) {
		wake := waiters.NewSlot()
		wake.Put(0)
		reply.Wake = wake
		h.s.pushed(h.p, req.ID)
	}
	return reply, place, err
}

// TestAdviceBeforeAnswer: a server's advice to ask again comes before its answer. The waiter is told.
func TestAdviceBeforeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, h := holding(t, 3)
		p := s.endpoints[0]
		early := &hasty{member: p.at(), s: s, p: p}
		here := member(early)
		p.here.Store(&here)
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "b", Name: h.Name, Mode: driver.Exclusive, N: 1, Wait: true})
		if err != nil || reply.Wake == nil || !early.advised.Load() {
			t.Fatal(reply, err)
		}
		synctest.Wait()
		select {
		case token := <-reply.Wake:
			if token != 0 {
				t.Errorf("granted with token %d", token)
			}
		default:
			t.Error("not told")
		}
	})
}

package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// overtaken is a server whose answers to requests come some time later. Others overtake them.
type overtaken struct{ member }

func (m overtaken) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	reply, place, err := m.member.Ask(ctx, req, propose)
	time.Sleep(answersAfter)
	return reply, place, err
}

// TestYieldUnderAnOldToken: server 0 has granted a waiting request, and raises the grant to a larger token. The
// answer to an earlier exchange comes later and has the old token. Then another request claims the server, which
// refuses a yield under the old token. The session learns soon that the request still has the server, and yields it at
// the next claim. Otherwise the server is nobody's until the request is renewed.
func TestYieldUnderAnOldToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 1, "c", 0, time.Hour)
		w.votesFor(s, 2, "c", 0, time.Hour)
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
		if err != nil || reply.Token != 0 {
			t.Fatal(reply, err)
		}
		r, p, v := s.find("a"), s.endpoints[0], w.servers[0]
		here := p.at()
		w.mu.Lock()
		old := driver.Hold{Name: "x", ID: "a", Token: v.token}
		v.join(simPlace{"b", 2, 1, time.Now().Add(time.Hour), 0, here.(*simMember)})
		w.mu.Unlock()
		put(p, overtaken{here})
		s.askOne(r, p, s.stamp.Add(1), 0)
		time.Sleep(answersAfter / 2)
		raised := make(chan error, 1)
		s.raiseOne(r, p, term{stamp: s.stamp.Add(1)}, old, old.Token+1000, raised)
		if err := <-raised; err != nil {
			t.Fatal(err)
		}
		put(p, here)
		time.Sleep(answersAfter)
		for _, want := range []state{granted, waiting} {
			s.claimed(p, "a", 0, "b")
			time.Sleep(time.Second)
			r.mu.Lock()
			if got := r.votes[0].state; got != want {
				t.Errorf("state %d, want %d", got, want)
			}
			r.mu.Unlock()
		}
		if n := w.has("b"); n != 1 {
			t.Errorf("%d servers have granted the other request", n)
		}
	})
}

// lostYield is a server that the first yield does not reach.
type lostYield struct {
	member
	lost atomic.Bool
}

func (m *lostYield) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	if m.lost.CompareAndSwap(false, true) {
		return nil, 0, driver.ErrUncertain
	}
	return m.member.Yield(ctx, h, to, place, block)
}

// TestYieldWithoutAnAnswer: a request has one server, which another one claims. The yield is lost. The session learns
// soon that it still has the server, and yields it at the next claim.
func TestYieldWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 1, "c", 0, time.Hour)
		w.votesFor(s, 2, "c", 0, time.Hour)
		p := s.endpoints[0]
		here := p.at()
		put(p, &lostYield{member: here})
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
		if err != nil || reply.Token != 0 {
			t.Fatal(reply, err)
		}
		w.mu.Lock()
		w.servers[0].join(simPlace{"b", 2, 1, time.Now().Add(time.Hour), 0, here.(*simMember)})
		w.mu.Unlock()
		for i := range 2 {
			s.claimed(p, "a", 0, "b")
			time.Sleep(time.Second)
			if n := w.has("b"); n != i {
				t.Errorf("after claim %d: %d servers have granted the other request", i+1, n)
			}
		}
	})
}

package quorum

import (
	"context"
	"fmt"
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
		w, s, p := claimedAtZero(t)
		r, here := s.find("a"), p.at()
		w.mu.Lock()
		old := driver.Hold{Name: "x", ID: "a", Token: w.servers[0].token}
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

// lostYield is a server that the first yield does not reach, nor the first questions after it.
type lostYield struct {
	member
	lost  atomic.Bool
	asked atomic.Int32 // so many questions are left that do not reach it
}

func (m *lostYield) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	if m.lost.Load() && m.asked.Add(-1) >= 0 {
		return driver.Reply{}, 0, driver.ErrUncertain
	}
	return m.member.Ask(ctx, req, propose)
}

func (m *lostYield) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	if m.lost.CompareAndSwap(false, true) {
		return nil, 0, driver.ErrUncertain
	}
	return m.member.Yield(ctx, h, to, place, block)
}

// TestYieldWithoutAnAnswer: a request has one server, which another one claims. The yield is lost, and perhaps the
// question after it. The session learns soon that it still has the server, and yields it at the next claim.
func TestYieldWithoutAnAnswer(t *testing.T) {
	for questions := range int32(3) {
		synctest.Test(t, func(t *testing.T) {
			w, s, p := claimedAtZero(t)
			m := &lostYield{member: p.at()}
			m.asked.Store(questions)
			put(p, m)
			for i := range 2 + int(questions) {
				s.claimed(p, "a", 0, "b")
				time.Sleep(time.Second)
				if n := w.has("b"); (n == 1) != (i == 1+int(questions)) {
					t.Errorf("%d questions lost, after claim %d: %d servers have granted the other request", questions, i+1, n)
				}
			}
		})
	}
}

// claimedAtZero is three, with a request a that waits and has granted server 0, where b waits.
func claimedAtZero(t *testing.T) (*world, *session, *endpoint) {
	w, s := three(t)
	w.votesFor(s, 1, "c", 0, time.Hour)
	w.votesFor(s, 2, "c", 0, time.Hour)
	reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
	if err != nil || reply.Token != 0 {
		t.Fatal(reply, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := s.endpoints[0]
	w.servers[0].join(simPlace{"b", 2, 1, time.Now().Add(time.Hour), 0, p.at().(*simMember)})
	return w, s, p
}

// noAnswer is a server that does what a yield asks, or does not, and does not answer it for a second.
type noAnswer struct {
	member
	does bool
}

func (m noAnswer) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	if m.does {
		_, _, _ = m.member.Yield(ctx, h, to, place, block)
	}
	time.Sleep(time.Second)
	return nil, 0, driver.ErrUncertain
}

// TestYieldDuringTheGrant: a request yields server 0, and a majority grants it before the answer, which is lost. Its
// release leaves neither a grant nor a place at that server.
func TestYieldDuringTheGrant(t *testing.T) {
	for _, does := range []bool{false, true} {
		t.Run(fmt.Sprint("does it ", does), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, p := claimedAtZero(t)
				here := p.at()
				put(p, noAnswer{here, does})
				s.claimed(p, "a", 0, "b")
				time.Sleep(100 * time.Millisecond)
				w.releases(s, 1, 2)
				time.Sleep(2 * time.Second) // the yield has failed
				put(p, here)
				if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: s.agreedOn()}, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				w.mu.Lock()
				v := w.servers[0]
				if v.holder.id == "a" && v.held() || v.find("a") >= 0 {
					t.Errorf("server 0 is left with %v until %v, and %v in the queue", v.holder, time.Until(v.end), v.queue)
				}
				w.mu.Unlock()
			})
		})
	}
}

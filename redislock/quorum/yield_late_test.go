package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// releases lets b release servers, which push the grants of the next requests.
func (w *world) releases(s *session, of ...int) {
	propose := s.clock.propose()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range of {
		w.servers[i].drop()
		w.servers[i].advance(propose)
	}
}

// agreedOn returns the token of the request a, or 0.
func (s *session) agreedOn() uint64 {
	r := s.find("a")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token
}

// TestMajorityAfterALongWait: a request has server 0 for long, and server 2 is dead. When it gets server 1, it has a
// majority with different tokens. It must not wait for the time when it would claim servers again.
func TestMajorityAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.servers[2].dead = true
		w.votesFor(s, 1, "b", 0, time.Hour)
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
		if err != nil || reply.Token != 0 || w.has("a") != 1 {
			t.Fatal(reply, err)
		}
		time.Sleep(14 * time.Second)
		began := time.Now()
		w.releases(s, 1)
		if token := <-reply.Wake; token == 0 || time.Since(began) > time.Second {
			t.Errorf("token %d after %v", token, time.Since(began))
		}
	})
}

// asksCounted counts questions.
type asksCounted struct {
	member
	n atomic.Int32
}

func (m *asksCounted) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	m.n.Add(1)
	return m.member.Ask(ctx, req, propose)
}

// TestManyClaims: however many claims come, from whomever, the session has one question under way.
func TestManyClaims(t *testing.T) {
	for _, state := range []state{waiting, nothing} {
		synctest.Test(t, func(t *testing.T) {
			w, s := three(t)
			for i := range 3 {
				w.votesFor(s, i, "b", 0, time.Hour)
			}
			req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			r := s.find("a")
			r.mu.Lock()
			r.votes[0].state = state
			r.mu.Unlock()
			m := &asksCounted{member: s.endpoints[0].at()}
			put(s.endpoints[0], m)
			for range 1000 {
				s.claimed(s.endpoints[0], "a", 0, "z")
			}
			time.Sleep(time.Second)
			if n := m.n.Load(); n != 1 {
				t.Errorf("state %d: %d questions", state, n)
			}
		})
	}
}

// silentEnd is a server that gets neither releases nor cancellations.
type silentEnd struct{ member }

func (m silentEnd) Pass(ctx context.Context, _ driver.Hold, _ time.Duration, _ uint64) error {
	<-ctx.Done()
	return driver.ErrUncertain
}

func (m silentEnd) Cancel(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return driver.ErrUncertain
}

// TestReleaseAfterALostYield: the yield of server 0 got lost, so the server still has the grant. It and server 2 are
// silent at the release. That is no success: a majority still has the grant.
func TestReleaseAfterALostYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, p := claimedAtZero(t)
		here := p.at()
		put(p, noAnswer{here, false})
		s.claimed(p, "a", 0, "b")
		time.Sleep(100 * time.Millisecond)
		w.releases(s, 1, 2)
		time.Sleep(2 * time.Second)
		for _, i := range []int{0, 2} {
			put(s.endpoints[i], silentEnd{s.endpoints[i].at()})
		}
		bound, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := s.Release(bound, driver.Hold{Name: "x", ID: "a", Token: s.agreedOn()}, 0); err == nil {
			t.Errorf("%d servers still have the grant", w.has("a"))
		}
	})
}

// answersLost is a server that does what is asked, and whose answers get lost. Then renewals cannot be sent.
type answersLost struct{ member }

func (m answersLost) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	_, _, _ = m.member.Ask(ctx, req, propose)
	time.Sleep(time.Second)
	return driver.Reply{}, 0, driver.ErrUncertain
}

func (answersLost) Renew(context.Context, []driver.Hold) ([]driver.Change, error) {
	return nil, driver.ErrUnavailable
}

// TestReleaseAfterALostAnswer: server 0 has granted the request, but its answer got lost, and perhaps a renewal does
// not reach it either. It and server 2 are silent at the release. That is no success: a majority still has the grant.
func TestReleaseAfterALostAnswer(t *testing.T) {
	for _, renews := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, s := three(t)
			s.noteContended("x", time.Millisecond) // so all are asked at once
			put(s.endpoints[0], answersLost{s.endpoints[0].at()})
			reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
			if err != nil || reply.Token == 0 {
				t.Fatal(reply, err)
			}
			time.Sleep(5 * time.Second)
			h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
			if renews {
				_, _ = s.Renew(t.Context(), []driver.Hold{h})
			}
			time.Sleep(time.Second)
			for _, i := range []int{0, 2} {
				put(s.endpoints[i], silentEnd{s.endpoints[i].at()})
			}
			if err := s.Release(t.Context(), h, 0); err == nil && w.has("a") >= 2 {
				t.Errorf("renewed: %v; %d servers still have the grant", renews, w.has("a"))
			}
		})
	}
}

// answersLate is a server that answers renewals late, and that no yield reaches.
type answersLate struct{ member }

func (m answersLate) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	changes, err := m.member.Renew(ctx, holds)
	time.Sleep(200 * time.Millisecond)
	return changes, err
}

func (answersLate) Yield(context.Context, driver.Hold, string, uint64, int) (<-chan uint64, uint64, error) {
	time.Sleep(time.Second)
	return nil, 0, driver.ErrUncertain
}

// TestPlaceFoundDuringAYield: the late answer of a renewal says that the request waits at server 0. Meanwhile the
// server has granted it, and the session yields that, which gets lost. The next claims must get the server.
func TestPlaceFoundDuringAYield(t *testing.T) {
	for _, crossing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, s := three(t)
			for i := range 3 {
				w.votesFor(s, i, "c", 0, time.Hour)
			}
			req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			p := s.endpoints[0]
			here := p.at()
			put(p, answersLate{here})
			put(s.endpoints[1], answersLate{s.endpoints[1].at()})
			if crossing {
				go func() { _, _ = s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}}) }()
			}
			time.Sleep(20 * time.Millisecond)
			w.releases(s, 0)
			time.Sleep(20 * time.Millisecond)
			w.mu.Lock()
			w.servers[0].join(simPlace{"b", 2, 1, time.Now().Add(time.Hour), 0, here.(*simMember)})
			w.mu.Unlock()
			s.claimed(p, "a", 0, "b")
			time.Sleep(2 * time.Second)
			put(p, here)
			for n := 0; w.has("b") == 0; n++ {
				if n == 5 {
					t.Fatalf("crossing: %v; after %d claims the server is not given up", crossing, n)
				}
				s.claimed(p, "a", 0, "b")
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// lateYield is a server that a yield reaches only right before the next raise, long after its caller has given up.
type lateYield struct {
	member
	mu     sync.Mutex
	late   func()
	before func()
}

func (m *lateYield) Yield(_ context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	m.mu.Lock()
	m.late = func() { _, _, _ = m.member.Yield(context.Background(), h, to, place, block) }
	m.mu.Unlock()
	time.Sleep(time.Second)
	return nil, 0, driver.ErrUncertain
}

func (m *lateYield) Raise(ctx context.Context, h driver.Hold, token uint64, lease time.Duration) (
	uint64, time.Duration, error) {
	m.mu.Lock()
	late := m.late
	m.late = nil
	m.mu.Unlock()
	if late != nil {
		m.before()
		late()
	}
	return m.member.Raise(ctx, h, token, lease)
}

// TestYieldBeforeTheRaise: a majority grants the request before its late yield arrives, and then a raise at the same
// server. The release leaves no place there.
func TestYieldBeforeTheRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, p := claimedAtZero(t)
		put(p, &lateYield{member: p.at(), before: func() {
			w.releases(s, 1, 2)
			time.Sleep(20 * time.Millisecond)
		}})
		s.claimed(p, "a", 0, "b")
		time.Sleep(1500 * time.Millisecond)
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: s.agreedOn()}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.servers[0].find("a") >= 0 {
			t.Errorf("the request has a place: %v", w.servers[0].queue)
		}
	})
}

// answerLost is a server that does a yield, whose answer gets lost.
type answerLost struct{ *simMember }

func (m answerLost) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	lose := func(part float64) {
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		m.w.lose = part
	}
	lose(1)
	defer lose(0)
	return m.simMember.Yield(ctx, h, to, place, block)
}

// TestPushAfterALostYield: server 0 has done a yield, but the answer got lost, and perhaps that of the question after
// it. A renewal finds the place. The push of its grant must be heard.
func TestPushAfterALostYield(t *testing.T) {
	for questions := range int32(2) {
		synctest.Test(t, func(t *testing.T) {
			w, s, p := claimedAtZero(t)
			w.servers[2].dead = true
			here := p.at().(*simMember)
			m := &lostYield{member: answerLost{here}}
			m.asked.Store(questions)
			m.lost.Store(true) // the yield arrives
			put(p, m)
			r := s.find("a")
			here.mu.Lock() // it had waited there before it was granted
			slot := here.asks["a"].wake
			here.mu.Unlock()
			r.mu.Lock()
			r.votes[0].wake = slot
			r.mu.Unlock()
			s.claimed(p, "a", 0, "b")
			renew := func() { _, _ = s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}}) }
			time.Sleep(5 * time.Second)
			renew()
			w.releases(s, 1)
			time.Sleep(15 * time.Second)
			renew()
			w.releases(s, 0)
			time.Sleep(50 * time.Millisecond)
			if s.agreedOn() == 0 {
				t.Errorf("%d questions lost: the name is free", questions)
			}
		})
	}
}

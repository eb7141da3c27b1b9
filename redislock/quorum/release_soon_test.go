package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// passless is a server that misses the next releases, so many.
type passless struct {
	member
	n *int
}

func (m passless) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	if *m.n--; *m.n >= 0 {
		return driver.ErrUnavailable
	}
	return m.member.Pass(ctx, h, keep, propose)
}

// freeAfter returns how long it takes until another request gets the name.
func freeAfter(t *testing.T, s *session) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		id := fmt.Sprint("b", time.Since(began).Microseconds())
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: id, Name: "x", Mode: driver.Exclusive, N: 1})
		free := time.Since(began)
		switch {
		case reply.Token != 0:
			return free
		case free > modelTTL:
			t.Fatalf("nobody got the name for %v: %v", free, err)
		}
	}
}

// TestMissedReleaseBesideADeadServer: a minority is away, and one of the other servers misses a release. It gets a
// cancellation soon, so the name is free for others, though the session renews nothing.
func TestMissedReleaseBesideADeadServer(t *testing.T) {
	for _, of := range []int{3, 5} {
		t.Run(fmt.Sprint(of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := simulated(of)
				t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
				req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
				order := newRequest(req, of).order
				for _, i := range order[of/2+1:] {
					put(s.endpoints[i], down{s.endpoints[i].at()})
				}
				reply, err := s.Acquire(t.Context(), req)
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				p, n := s.endpoints[order[0]], 1
				put(p, passless{p.at(), &n})
				if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
					t.Fatal(err)
				}
				if free := freeAfter(t, s); free > 2*redial {
					t.Errorf("free %v after the release", free)
				}
			})
		})
	}
}

// TestTwoMissedReleases: of two releases each is missed by another server.
func TestTwoMissedReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		for k, id := range []string{"a1", "a2"} {
			req := &driver.Request{ID: id, Name: "x", Mode: driver.Exclusive, N: 1}
			p, n := s.endpoints[newRequest(req, 3).order[k]], 1
			reply, err := s.Acquire(t.Context(), req)
			if err != nil || reply.Token == 0 {
				t.Fatal(id, reply, err)
			}
			time.Sleep(2 * grace) // all three have it
			here := p.at()
			put(p, passless{here, &n})
			if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: id, Token: reply.Token}, 0); err != nil {
				t.Fatal(id, err)
			}
			put(p, here)
		}
		if free := freeAfter(t, s); free > 2*redial {
			t.Errorf("free %v after the last release", free)
		}
	})
}

// lateQuestion is a server that questions reach late, and of which the second cancellation gets lost.
type lateQuestion struct {
	member
	cancels *int
}

func (m lateQuestion) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	time.Sleep(25 * time.Millisecond)
	return m.member.Ask(ctx, req, propose)
}

func (m lateQuestion) Cancel(ctx context.Context, name, id string) error {
	if *m.cancels++; *m.cancels == 2 {
		return driver.ErrUncertain
	}
	return m.member.Cancel(ctx, name, id)
}

// TestReleaseBeforeALateQuestion: two servers have granted the request, and the question to the third is under way.
// The release reaches one server only. The cancellation overtakes the question at the third, which then grants it:
// a majority has the grant, so the release must not be successful.
func TestReleaseBeforeALateQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
		order := newRequest(req, 3).order
		late, missed := s.endpoints[order[0]], s.endpoints[order[2]]
		cancels, n := 0, 1000
		put(late, lateQuestion{late.at(), &cancels})
		put(missed, passless{missed.at(), &n})
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		err = s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0)
		time.Sleep(50 * time.Millisecond)
		if has := w.has("a"); has < 2 || !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%v, and %d servers have the grant", err, has)
		}
		time.Sleep(2 * redial)
		if has := w.has("a"); has > 0 {
			t.Errorf("%d servers have the grant, for nobody", has)
		}
	})
}

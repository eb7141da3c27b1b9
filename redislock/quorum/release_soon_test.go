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
				p := s.endpoints[order[0]]
				put(p, &missing{once: true, member: p.at()})
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
			p := s.endpoints[newRequest(req, 3).order[k]]
			reply, err := s.Acquire(t.Context(), req)
			if err != nil || reply.Token == 0 {
				t.Fatal(id, reply, err)
			}
			time.Sleep(2 * grace) // all three have it
			here := p.at()
			put(p, &missing{once: true, member: here})
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
// One of the two misses the release. The cancellation overtakes the question at the third, which then grants it, and
// the next cancellation gets lost. Still no server has the grant for long.
func TestReleaseBeforeALateQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
		order := newRequest(req, 3).order
		late, missed := s.endpoints[order[0]], s.endpoints[order[2]]
		cancels := 0
		put(late, lateQuestion{late.at(), &cancels})
		put(missed, &missing{once: true, member: missed.at()})
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*redial + grace)
		if has := w.has("a"); has > 0 || cancels < 3 {
			t.Errorf("%d servers have the grant, for nobody; %d cancellations", has, cancels)
		}
	})
}

// TestReleaseWithALateQuestion: the same, and the server that misses the release is away from then on. The release is
// successful without it.
func TestReleaseWithALateQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
		order := newRequest(req, 3).order
		late, away := s.endpoints[order[0]], s.endpoints[order[2]]
		put(late, inOrder{late.at(), make(chan bool, 1)})
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		put(away, down{away.at()})
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
			t.Error(err)
		}
	})
}

// inOrder is a server whose exchanges take 25 ms, one after the other.
type inOrder struct {
	member
	one chan bool
}

func (m inOrder) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	m.one <- true
	defer func() { <-m.one }()
	time.Sleep(25 * time.Millisecond)
	return m.member.Ask(ctx, req, propose)
}

func (m inOrder) Cancel(ctx context.Context, name, id string) error {
	m.one <- true
	defer func() { <-m.one }()
	time.Sleep(25 * time.Millisecond)
	return m.member.Cancel(ctx, name, id)
}

// TestRefusedReleaseIsRepeated: all servers refuse a release, and its caller repeats it. No cancellation comes before
// that, which would look like the end of the grant.
func TestRefusedReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1})
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		time.Sleep(2 * grace) // all three have it
		for _, p := range s.endpoints {
			put(p, &missing{once: true, err: driver.ErrRefused, member: p.at()})
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		if err := s.Release(t.Context(), h, 0); !errors.Is(err, driver.ErrRefused) {
			t.Error("refused:", err)
		}
		time.Sleep(5 * time.Second)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Error("repeated:", err)
		}
		time.Sleep(grace)
		if has := w.has("a"); has > 0 {
			t.Errorf("%d servers have the grant", has)
		}
	})
}

// TestLateFailureOfARepeatedRelease: a release gets no answer from one server, and the others refuse it or have
// done it. Its caller repeats it, which ends the grant at a majority. Then the first exchange with that server fails.
// The server gets a cancellation soon.
func TestLateFailureOfARepeatedRelease(t *testing.T) {
	for _, failure := range []error{driver.ErrRefused, driver.ErrUncertain} {
		lost := failure == driver.ErrUncertain
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := three(t)
				reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1})
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				time.Sleep(2 * grace) // all three have it
				for _, p := range s.endpoints[:2] {
					put(p, &missing{once: true, does: lost, err: failure, member: p.at()})
				}
				put(s.endpoints[2], &missing{wait: 3 * time.Second, member: s.endpoints[2].at()})
				h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				first := s.Release(ctx, h, 0)
				cancel()
				if err := s.Release(t.Context(), h, 0); first == nil || err != nil && !driver.IsOver(err) {
					t.Errorf("%v, and then %v", first, err)
				}
				time.Sleep(3*time.Second + 2*redial)
				if has := w.has("a"); has > 0 {
					t.Errorf("%d servers have the grant, for nobody", has)
				}
			})
		})
	}
}

// TestCloseSendsWhatIsNotDue: the TTL is long, and a release was refused. Close cancels the request.
func TestCloseSendsWhatIsNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		s.ttl = 24 * time.Hour
		p := s.endpoints[0]
		m := &noting{member: p.at(), ids: map[string]bool{}}
		put(p, m)
		s.releaseBegins("a")
		s.missedRelease(p, "x", "a")
		_ = s.Close(context.Background())
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.ids["a"] {
			t.Error("the server got no cancellation")
		}
	})
}

// TestClosedBackendGetsNoCancellations: the backend is closed, so cancellations fail at once. The session does not try
// without a pause.
func TestClosedBackendGetsNoCancellations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		p := s.endpoints[0]
		m := &missing{member: closedServer{p.at()}}
		put(p, m)
		s.cancelLater(p, "x", "a")
		time.Sleep(10 * time.Second)
		if n := m.cancelled.Load(); n > 14 {
			t.Errorf("%d cancellations in ten seconds", n)
		}
	})
}

type closedServer struct{ member }

func (closedServer) Cancel(context.Context, string, string) error { return driver.ErrClosed }

// mute is a server that never answers the cancellation of request y.
type mute struct{ member }

func (m mute) Cancel(ctx context.Context, name, id string) error {
	if id == "y" {
		<-ctx.Done()
		return driver.ErrUncertain
	}
	return m.member.Cancel(ctx, name, id)
}

// TestCancellationBehindALostAnswer: a cancellation does not wait for the answer to another one.
func TestCancellationBehindALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		p := s.endpoints[0]
		m := &noting{member: p.at(), ids: map[string]bool{}}
		put(p, mute{m})
		s.cancelLater(p, "x", "y")
		time.Sleep(redial + grace)
		s.cancelLater(p, "x", "z")
		time.Sleep(flushFor + 2*redial)
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.ids["z"] {
			t.Error("the server did not get it")
		}
	})
}

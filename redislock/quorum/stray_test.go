package quorum

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// asksTwice returns the grant of "a" by the second question to three servers. first is what each of them does with
// the first one, whose answer the caller does not get.
func asksTwice(t *testing.T, s *session, minimum time.Duration,
	first func(ctx context.Context, i int, do func() (driver.Reply, uint64, error)) (driver.Reply, uint64, error)) (
	[]*played, driver.Hold) {
	s.noteContended("x", 0) // so all servers are asked
	all := make([]*played, len(s.endpoints))
	for i, p := range s.endpoints {
		all[i] = &played{member: p.at()}
		all[i].ask = func(ctx context.Context, n int32, do func() (driver.Reply, uint64, error)) (
			driver.Reply, uint64, error) {
			if n > 1 {
				return do()
			}
			return first(ctx, i, do)
		}
		put(p, all[i])
	}
	req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: minimum, ReadWrite: true}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	_, _ = s.Acquire(ctx, req)
	cancel()
	reply, err := s.Acquire(t.Context(), req)
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	time.Sleep(20 * time.Millisecond)
	return all, driver.Hold{Name: "x", ID: "a", Token: reply.Token}
}

// TestStrayBehindADoneRelease: questions that are late reach the servers behind the release, and are answered before
// the release is. The servers have done the release, so a repeated one would find nothing: the grants are cancelled
// at once.
func TestStrayBehindADoneRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		arrive := make(chan struct{})
		all, h := asksTwice(t, s, 0, func(_ context.Context, _ int, do func() (driver.Reply, uint64, error)) (
			driver.Reply, uint64, error) {
			<-arrive
			return do()
		})
		for _, m := range all {
			m.pass = func(_ int32, do func() error) error {
				err := do()
				time.Sleep(20 * time.Millisecond)
				return err
			}
		}
		time.AfterFunc(5*time.Millisecond, func() { close(arrive) })
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(grace)
		if n := w.has("a"); n > 0 {
			t.Errorf("%d servers have a grant for nobody %v after the release", n, grace)
		}
	})
}

// downgradedBeside is asksTwice with a minimum hold of an hour, for a downgrade beside the release. Server 2 answers
// the first question when answer is closed, and misses the first release when pass is.
func downgradedBeside(t *testing.T, s *session) (all []*played, h driver.Hold, answer, pass chan struct{}) {
	answer, pass = make(chan struct{}), make(chan struct{})
	all, h = asksTwice(t, s, time.Hour, func(_ context.Context, i int, do func() (driver.Reply, uint64, error)) (
		driver.Reply, uint64, error) {
		if i != 2 {
			return driver.Reply{}, 0, driver.ErrUncertain
		}
		reply, place, err := do()
		<-answer
		return reply, place, err
	})
	for _, m := range all {
		m.down = func() error { return nil }
	}
	all[2].pass = func(n int32, do func() error) error {
		if n == 1 {
			<-pass
			return driver.ErrUnavailable
		}
		return do()
	}
	return all, h, answer, pass
}

// TestLateDowngradeBesideRelease: the answer to a downgrade that comes during the release is not taken for the
// release's. Otherwise a late question would cancel the grant before the release, and with it the minimum hold.
func TestLateDowngradeBesideRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		all, h, answer, pass := downgradedBeside(t, s)
		down := make(chan struct{})
		all[2].down = func() error { <-down; return nil }
		if err := s.Downgrade(t.Context(), h); err != nil {
			t.Fatal("downgrade:", err)
		}
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		close(answer)
		synctest.Wait()
		close(down)
		time.Sleep(grace)
		if n := all[2].cancels.Load(); n > 0 {
			t.Errorf("%d cancellations before the release was answered", n)
		}
		close(pass)
		time.Sleep(5 * time.Second)
		if !w.keeps(2, "a") {
			t.Error("server 2 does not keep the name")
		}
	})
}

// TestAnswersAsTheReleaseBegins: late questions are answered when a release has begun and has sent nothing yet. They
// do not cancel the grant.
func TestAnswersAsTheReleaseBegins(t *testing.T) {
	answer := make(chan struct{})
	_, s := three(t)
	_, h := asksTwice(t, s, 0, func(_ context.Context, _ int, do func() (driver.Reply, uint64, error)) (
		driver.Reply, uint64, error) {
		reply, place, err := do()
		<-answer
		return reply, place, err
	})
	r := s.find("a")
	done := make(chan error)
	s.clock.mu.Lock() // Release waits for it before it sends anything
	go func() { done <- s.Release(t.Context(), h, 0) }()
	for !r.isOver() {
		runtime.Gosched()
	}
	close(answer)
	for open := 1; open > 0; runtime.Gosched() {
		r.mu.Lock()
		open = r.votes[0].open + r.votes[1].open + r.votes[2].open
		r.mu.Unlock()
	}
	s.clock.mu.Unlock()
	if err := <-done; err != nil {
		t.Errorf("the first release of a grant: %v", err)
	}
}

// TestDowngradeBesideRelease: a downgrade has looked up the grant when the release ends the request. It is not taken
// for the release.
func TestDowngradeBesideRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		all, h, answer, pass := downgradedBeside(t, s)
		r := s.holding(h) // Downgrade's first step
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		close(answer)
		synctest.Wait()
		// Downgrade's second step
		_ = s.everywhere(t.Context(), r, h, false, false, func(ctx context.Context, p *endpoint, m member,
			own driver.Hold) error {
			return r.downgraded(p.index, m.Downgrade(ctx, own))
		}, func(*endpoint, driver.Hold) {})
		time.Sleep(grace)
		if n := all[2].cancels.Load(); n > 0 {
			t.Errorf("%d cancellations before the release was answered", n)
		}
		close(pass)
		time.Sleep(5 * time.Second)
		if !w.keeps(2, "a") {
			t.Error("server 2 does not keep the name")
		}
	})
}

package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestRepeatedReleaseFindsAnother: servers 0 and 1 have granted "a" with a minimum hold; server 2 is another's. Server
// 1 does the release, and server 0 misses two tries. The second try is told that another has the name. The caller
// cancels, as Lease.cancelLate, and server 0 must still keep the name: server 1 alone is no majority.
func TestRepeatedReleaseFindsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 2, "z", 0, time.Hour)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		time.Sleep(time.Second)
		put(s.endpoints[0], &played{member: s.endpoints[0].at(), pass: func(n int32, do func() error) error {
			if n == 1 {
				time.Sleep(400 * time.Millisecond)
			}
			if n <= 2 {
				return driver.ErrUnavailable
			}
			return do()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = s.Release(ctx, h, 0)
		cancel()
		if err == nil {
			t.Fatal("released without server 0")
		}
		if err := s.Release(t.Context(), h, 0); !driver.IsOver(err) {
			t.Fatal(err)
		}
		if err := s.Cancel(t.Context(), "x", "a"); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if !w.keeps(0, "a") || !w.keeps(1, "a") {
			t.Errorf("server 0 keeps the name: %v; server 1: %v", w.keeps(0, "a"), w.keeps(1, "a"))
		}
	})
}

// TestLatePlaceBesideAKeptName: servers 0 and 1 have granted "a" with a minimum hold; server 2 is that of "b", which
// waits. Server 1 had first given "a" a place. Server 0 does the release, and server 1 misses two tries. The late
// answer about the place must not end the grant at server 1 before it keeps the name.
func TestLatePlaceBesideAKeptName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		s.noteContended("x", 0)
		w.votesFor(s, 2, "b", 0, time.Hour)
		w.votesFor(s, 1, "y", 0, time.Hour)
		answer := make(chan struct{})
		m := &played{member: s.endpoints[1].at()}
		m.ask = func(_ context.Context, n int32, do func() (driver.Reply, uint64, error)) (driver.Reply, uint64, error) {
			reply, place, err := do()
			if n == 1 {
				<-answer
			}
			return reply, place, err
		}
		m.pass = func(n int32, do func() error) error {
			if n <= 2 {
				return driver.ErrUnavailable
			}
			return do()
		}
		put(s.endpoints[1], m)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour, Wait: true}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _ = s.Acquire(ctx, req)
		cancel()
		w.mu.Lock()
		w.servers[1].drop() // y has released it
		w.servers[1].advance(0)
		w.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
			t.Fatal(err)
		}
		close(answer)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			reply, err := s.Acquire(ctx, &driver.Request{ID: "b", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
			cancel()
			if err == nil && reply.Token != 0 {
				t.Fatal("b has the lock during the minimum hold")
			}
		}
		if !w.keeps(1, "a") {
			t.Error("server 1 does not keep the name")
		}
	})
}

// TestPlaceBehindAKeptRelease: a server has done a release that keeps the name, and its answer is lost. A question
// that arrives there after that gets a place. Nobody may be left with it: after the minimum hold it would get the
// grant of a request that is over. The question is the caller's, or the session's own.
func TestPlaceBehindAKeptRelease(t *testing.T) {
	test := func(t *testing.T, w *world, s *session, m *played, h driver.Hold, arrive chan struct{}) {
		answer := make(chan struct{})
		m.pass = func(n int32, do func() error) error {
			err := do()
			if n == 1 {
				<-answer
				err = driver.ErrUncertain
			}
			return err
		}
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		close(arrive)
		time.Sleep(30 * time.Millisecond)
		close(answer)
		time.Sleep(3 * time.Second)
		if n := w.has("a"); n > 0 {
			t.Errorf("%d servers have the grant, for nobody, a second after the minimum hold", n)
		}
	}
	const minimum = 2 * time.Second
	arrives := func(ctx context.Context, arrive chan struct{}, do func() (driver.Reply, uint64, error)) (
		driver.Reply, uint64, error) {
		select {
		case <-arrive:
			return do()
		case <-ctx.Done():
			return driver.Reply{}, 0, driver.ErrUncertain
		}
	}
	t.Run("of the caller", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, s := three(t)
			arrive := make(chan struct{})
			all, h := asksTwice(t, s, minimum, func(ctx context.Context, i int, do func() (driver.Reply, uint64, error)) (
				driver.Reply, uint64, error) {
				if i != 2 {
					return driver.Reply{}, 0, driver.ErrUncertain
				}
				return arrives(ctx, arrive, do)
			})
			test(t, w, s, all[2], h, arrive)
		})
	})
	t.Run("of the session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, s := three(t)
			req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: minimum}
			p := s.endpoints[newRequest(req, 3).order[2]]
			arrive := make(chan struct{})
			m := &played{member: p.at()}
			m.ask = func(ctx context.Context, n int32, do func() (driver.Reply, uint64, error)) (
				driver.Reply, uint64, error) {
				if n > 1 {
					return do()
				}
				return arrives(ctx, arrive, do)
			}
			put(p, m)
			reply, err := s.Acquire(t.Context(), req)
			if err != nil || reply.Token == 0 {
				t.Fatal(reply, err)
			}
			h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
			time.Sleep(2 * completeAfter) // the first question to the last server is under way
			p.slow.Store(0)
			if _, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil { // a second one
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			test(t, w, s, m, h, arrive)
		})
	})
}

// TestPlaceBehindAKeptName: server 2 has not granted the request when its release keeps the name, so it is asked to
// keep it, too. The session's own first question comes there after that, and its place is reported before that is
// answered. Nobody may be left with the place.
func TestPlaceBehindAKeptName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: 2 * time.Second}
		p := s.endpoints[newRequest(req, 3).order[2]]
		arrive, answer := make(chan struct{}), make(chan struct{})
		var begun atomic.Bool // the release
		m := &played{member: p.at()}
		m.ask = func(ctx context.Context, n int32, do func() (driver.Reply, uint64, error)) (driver.Reply, uint64, error) {
			if n == 1 {
				select {
				case <-arrive:
					return do()
				case <-ctx.Done():
					return driver.Reply{}, 0, driver.ErrUncertain
				}
			}
			if !begun.Load() { // other questions do not get there
				return driver.Reply{}, 0, driver.ErrUnavailable
			}
			return do()
		}
		m.pass = func(n int32, do func() error) error {
			err := do()
			if n == 1 {
				close(arrive)
				<-answer
			}
			return err
		}
		put(p, m)
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		time.Sleep(2 * completeAfter)
		p.slow.Store(0)
		if _, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		begun.Store(true)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		<-arrive
		time.Sleep(30 * time.Millisecond)
		close(answer)
		time.Sleep(3 * time.Second)
		if n := w.has("a"); n > 0 {
			t.Errorf("%d servers have the grant, for nobody, a second after the minimum hold", n)
		}
	})
}

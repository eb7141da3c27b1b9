package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// missing is a server that misses releases, or only the first one. It notes cancellations: in its
// script, one that comes while it has the grant ends that, and the minimum hold with it.
type missing struct {
	member
	once              bool
	does              bool          // the releases, and the answers get lost
	err               error         // of these releases; nil: ErrUnavailable
	wait              time.Duration // until the first one fails
	passes, cancelled atomic.Int32
}

func (m *missing) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	n := m.passes.Add(1)
	if n > 1 && m.once {
		return m.member.Pass(ctx, h, keep, propose)
	}
	if m.does {
		_ = m.member.Pass(ctx, h, keep, propose)
	}
	if n == 1 {
		time.Sleep(m.wait)
	}
	return cmp.Or(m.err, driver.ErrUnavailable)
}

func (m *missing) Cancel(ctx context.Context, name, id string) error {
	m.cancelled.Add(1)
	return m.member.Cancel(ctx, name, id)
}

// TestCancelAfterReleaseKeepsMinimum: one server misses the release of a grant with a minimum hold. It shall
// keep the name until that is over. A client whose first exchange was not answered cancels the request
// after its release has succeeded, because that exchange may still arrive. The minimum hold stays.
func TestCancelAfterReleaseKeepsMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, h := holdingFor(t, 3, time.Hour)
		for _, p := range s.endpoints {
			renews(t, s, p, h) // all have it
		}
		m := &missing{member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.cancelled.Load(); n != 0 {
			t.Fatalf("the release itself cancelled it %d times", n)
		}
		if err := s.Cancel(t.Context(), "x", "a"); err != nil { // as Lease.cancelLate
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.cancelled.Load(); n != 0 {
			t.Errorf("%d cancellations of a grant whose minimum hold is not over", n)
		}
	})
}

// put makes m the session at p.
func put(p *endpoint, m member) { p.here.Store(&m) }

// has counts the servers at which the request has a grant.
func (w *world) has(id string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.servers {
		if v.advance(0); v.held() && v.holder.id == id {
			n++
		}
	}
	return n
}

// TestLateExchangeAfterKeepingRelease: a first exchange was not answered by two servers, and is still under way there.
// A second one has got the grant. The release succeeds at all servers, with 70 ms of the minimum hold left.
// As package holdfast does, the request is cancelled after 0, 20 and 200 ms. The first exchange arrives at the
// two servers 120 ms after the release: the minimum hold is over, so they grant it. The last Cancel ends that.
func TestLateExchangeAfterKeepingRelease(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("close ", closes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, h := holdingFor(t, 3, 100*time.Millisecond)
				time.Sleep(30 * time.Millisecond) // all have answered
				if err := s.Release(t.Context(), h, 0); err != nil {
					t.Fatal(err)
				}
				released := time.Now()
				cancel := func() {
					if err := s.Cancel(t.Context(), "x", "a"); err != nil {
						t.Error(err)
					}
				}
				cancel()
				time.Sleep(20 * time.Millisecond)
				cancel()
				time.Sleep(time.Until(released.Add(120 * time.Millisecond)))
				if n := w.has("a"); n != 0 {
					t.Fatalf("%d servers still have the grant", n)
				}
				w.mu.Lock()
				for k, v := range w.servers[:2] { // the late exchange, as Ask in the server's script
					m := s.endpoints[k].at().(*simMember)
					end := v.till(time.Time{}, 0)
					v.give(simPlace{"a", 0, 1, end, 0, m}, end, 0)
				}
				w.mu.Unlock()
				time.Sleep(time.Until(released.Add(220 * time.Millisecond)))
				cancel()
				if closes {
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Until(released.Add(500 * time.Millisecond)))
				if n := w.has("a"); n > 0 {
					for w.has("a") > 0 {
						time.Sleep(100 * time.Millisecond)
					}
					t.Errorf("%d of 3 servers had a grant for nobody, until %v after the release", n, time.Since(released))
				}
			})
		})
	}
}

// doneOnce is a server whose answer to the first release gets lost.
type doneOnce struct {
	member
	passes atomic.Int32
}

func (m *doneOnce) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	err := m.member.Pass(ctx, h, keep, propose)
	if m.passes.Add(1) == 1 {
		return driver.ErrUncertain
	}
	return err
}

// TestCancelAfterRepeatedRelease: server 0 does the release, server 1 does it and its answer gets lost, and
// server 2 misses it. The release is uncertain, so the client repeats it (releaser), and gets ErrGone. Then it
// cancels the request. The release did keep the name, so server 2 keeps its minimum hold.
func TestCancelAfterRepeatedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		put(s.endpoints[1], &doneOnce{member: s.endpoints[1].at()})
		m := &missing{member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		if err := s.Release(t.Context(), h, 0); !errors.Is(err, driver.ErrUncertain) {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), h, 0); !driver.IsOver(err) {
			t.Fatal(err)
		}
		_ = s.Cancel(t.Context(), "x", "a") // as the repeats of the task
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		if n := m.cancelled.Load(); n != 0 {
			t.Errorf("%d cancellations of a grant whose minimum hold is not over", n)
		}
	})
}

// failsOnce is a server that the first request does not reach.
type failsOnce struct {
	member
	asked atomic.Int32
}

func (m *failsOnce) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	if m.asked.Add(1) == 1 {
		return driver.Reply{}, 0, driver.ErrUncertain
	}
	return m.member.Ask(ctx, req, propose)
}

// hangs is a server that does the first request at once. Its answer comes when answer is closed, or never. It
// misses the release, which fails when pass is closed.
type hangs struct {
	missing
	asked        atomic.Int32
	answer, pass chan struct{}
}

func (m *hangs) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	reply, place, err := m.member.Ask(ctx, req, propose)
	if m.asked.Add(1) == 1 {
		select {
		case <-m.answer:
		case <-ctx.Done():
			return driver.Reply{}, 0, driver.ErrUncertain
		}
	}
	return reply, place, err
}

func (m *hangs) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	<-m.pass
	return m.missing.Pass(ctx, h, keep, propose)
}

// hanging returns a session that has got a grant, with a minimum hold, by its second exchange. Server 2 has
// granted both, and owes the answer to the first.
func hanging(t *testing.T) (*session, *hangs, driver.Hold) {
	_, s := simulated(3)
	t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
	for _, p := range s.endpoints[:2] {
		put(p, &failsOnce{member: p.at()})
	}
	m := &hangs{missing: missing{member: s.endpoints[2].at()}, answer: make(chan struct{}), pass: make(chan struct{})}
	put(s.endpoints[2], m)
	req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: time.Hour}
	if reply, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrSpent) {
		t.Fatal(reply, err)
	}
	time.Sleep(100 * time.Millisecond) // server 2 has done the first one
	reply, err := s.Acquire(t.Context(), req)
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	time.Sleep(100 * time.Millisecond)
	r := s.find("a")
	r.mu.Lock()
	state := r.votes[2].state
	r.mu.Unlock()
	if state != granted {
		t.Fatal("server 2 does not have it:", state)
	}
	return s, m, driver.Hold{Name: "x", ID: "a", Token: reply.Token}
}

// TestLateFailureAfterKeepingRelease: server 2 misses the release; later the first exchange with it fails. That
// cancels nothing: its minimum hold stays.
func TestLateFailureAfterKeepingRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, h := hanging(t)
		close(m.pass)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)                          // the exchange has its time limit
		s.endpoints[2].slow.Store(0)                         // it has answered something else
		if _, err := s.Renew(t.Context(), nil); err != nil { // as the client does, every third of a TTL
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if n := m.cancelled.Load(); n != 0 {
			t.Errorf("%d cancellations of a grant whose minimum hold is not over", n)
		}
	})
}

// TestLateAnswerDuringKeepingRelease: the first exchange with server 2 is answered while the release is under way
// there. Then the release fails there. The minimum hold stays.
func TestLateAnswerDuringKeepingRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, h := hanging(t)
		if err := s.Release(t.Context(), h, 0); err != nil { // by servers 0 and 1
			t.Fatal(err)
		}
		close(m.answer)
		synctest.Wait()
		close(m.pass)
		time.Sleep(100 * time.Millisecond)
		if n := m.cancelled.Load(); n != 0 {
			t.Errorf("%d cancellations of a grant whose minimum hold is not over", n)
		}
	})
}

// TestCancelAfterAFailedRelease: no server receives the release. Cancel then ends the grant at all servers.
func TestCancelAfterAFailedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		time.Sleep(100 * time.Millisecond)
		for _, p := range s.endpoints {
			put(p, &missing{member: p.at()})
		}
		if err := s.Release(t.Context(), h, 0); err == nil ||
			driver.IsOver(err) {
			t.Fatal(err)
		}
		if err := s.Cancel(t.Context(), "x", "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if n := w.has("a"); n > 0 {
			t.Errorf("Cancel has returned nil, and %d of 3 servers have the grant", n)
		}
	})
}

// TestKeptNamesAreBounded: a server is silent, so the session notes which names it does not keep yet. It notes
// a bounded number, and nothing after Close.
func TestKeptNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(3)
		t.Cleanup(func() { _ = s.b.Close() })
		for i := range 2 * mostKeeps {
			s.keepsName(fmt.Sprint(i), time.Hour, nil)
		}
		if n := len(s.keptNames); n != mostKeeps {
			t.Errorf("%d names; want %d", n, mostKeeps)
		}
		time.Sleep(2 * s.ttl)
		if s.keepsName("new", time.Hour, nil); len(s.keptNames) != 1 {
			t.Errorf("%d names; want the last one", len(s.keptNames))
		}
		_ = s.Close(context.Background())
		if s.keepsName("late", time.Hour, nil); len(s.keptNames) != 0 {
			t.Errorf("%d names after Close", len(s.keptNames))
		}
	})
}

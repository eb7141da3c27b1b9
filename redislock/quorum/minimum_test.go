package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// cut is a server that a cable connects, which can be pulled.
type cut struct {
	member
	off atomic.Bool
}

func (m *cut) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if m.off.Load() {
		return nil, driver.ErrUnavailable
	}
	return m.member.Renew(ctx, holds)
}

func (m *cut) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	if m.off.Load() {
		return driver.Reply{}, 0, driver.ErrUnavailable
	}
	return m.member.Ask(ctx, req, propose)
}

func (m *cut) Keep(ctx context.Context, h driver.Hold, upTo uint64, left time.Duration) error {
	if m.off.Load() {
		return driver.ErrUnavailable
	}
	return m.member.Keep(ctx, h, upTo, left)
}

// TestLeaseLapsedWithinTheMinimum: server 2 is cut off for longer than a TTL, so the lease ends there, and the
// minimum hold stays. When the server is back it grants the request again. Then servers 1 and 0 may fail one
// after the other.
func TestLeaseLapsedWithinTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		m := &cut{member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		renew := func() {
			t.Helper()
			if changes, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) > 0 {
				t.Fatal(changes, err)
			}
			time.Sleep(s.ttl / 3)
		}
		m.off.Store(true)
		for range 4 {
			renew()
		}
		if n := w.has("a"); n != 2 {
			t.Fatalf("%d servers have the lease", n)
		}
		m.off.Store(false)
		for range 2 {
			renew()
		}
		if n := w.has("a"); n != 3 {
			t.Errorf("%d servers have the lease", n)
		}
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, v := range w.servers {
			if d := time.Until(v.kept); d < 50*time.Minute || d > time.Hour {
				t.Errorf("server %d keeps the name for %v", i, d)
			}
		}
	})
}

// owing is a server that owes the answers to renewals and releases, and counts the requests.
type owing struct {
	member
	owes  bool
	asked atomic.Int32
}

func (m *owing) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if m.owes {
		<-ctx.Done()
		return nil, driver.ErrUncertain
	}
	return m.member.Renew(ctx, holds)
}

func (m *owing) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	if m.owes {
		<-ctx.Done()
		return driver.ErrUncertain
	}
	return m.member.Pass(ctx, h, keep, propose)
}

func (m *owing) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	m.asked.Add(1)
	return m.member.Ask(ctx, req, propose)
}

// TestReleaseAfterABreak: an operator has ended the grant at servers 1 and 2. The holder knows of server 2,
// and server 1 owes answers. The release must not be successful, because a majority has ended the grant. And it must
// not take the name again at server 2.
func TestReleaseAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		w.mu.Lock()
		w.servers[1].drop()
		w.servers[2].drop()
		w.mu.Unlock()
		put(s.endpoints[1], &owing{member: s.endpoints[1].at(), owes: true})
		m := &owing{member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		bound, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = s.Renew(bound, []driver.Hold{h})
		bound, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := s.Release(bound, h, 0); err == nil {
			t.Error("the release was successful")
		}
		time.Sleep(5 * time.Second)
		if n := m.asked.Load(); n > 0 {
			t.Errorf("server 2 was asked for the name %d times", n)
		}
	})
}

// TestKeptAtAMajority: a name is shown as kept after a release if a majority keeps it.
func TestKeptAtAMajority(t *testing.T) {
	_, s := simulated(3)
	t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
	held := driver.Holder{ID: "a", Token: 7, Left: 10 * time.Second}
	kept := driver.Holder{ID: "a", Token: 7, Left: time.Hour, Kept: true}
	for n, same := range [][]driver.Holder{
		{held, held, held}, {held, kept, held}, {kept, held, kept}, {kept, kept, kept},
	} {
		if h := s.b.one(same); h.Kept != (n > 1) {
			t.Errorf("%d of 3 servers keep the name: shown as kept: %v", n, h.Kept)
		}
	}
}

// TestReleaseBesideAnEmptyServer: server 2 has lost its data, and the holder knows that. Server 1 owes answers. That
// is no break: the release is successful with the answer of server 0, since the lease is proven.
func TestReleaseBesideAnEmptyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		r := s.find("a")
		r.mu.Lock()
		r.gone(2, s.stamp.Add(1))
		r.votes[2].ended, r.votes[2].missing = true, true // as learn
		r.mu.Unlock()
		w.mu.Lock()
		w.servers[2].drop()
		w.mu.Unlock()
		put(s.endpoints[1], &owing{member: s.endpoints[1].at(), owes: true})
		began := time.Now()
		if err := s.Release(t.Context(), h, 0); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestLateAnswerOfFive: two of five servers have done a request, one says that the grant is over, and the next
// answer comes late. It makes the majority.
func TestLateAnswerOfFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(5)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		answers := make(chan error)
		go func() {
			answers <- nil
			answers <- nil
			answers <- driver.ErrGone
			time.Sleep(4 * grace)
			answers <- nil
		}()
		if err := s.sum(t.Context(), answers, 4, 0, true); err != nil {
			t.Error(err)
		}
	})
}

// TestMinimumOfAnotherGrant: a lease expires, and the same request is granted once more. The minimum hold begins
// anew.
func TestMinimumOfAnotherGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		m := &minimums{member: s.endpoints[0].at()}
		put(s.endpoints[0], m)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: 10 * time.Second}
		for i := range 2 {
			if reply, err := s.Acquire(t.Context(), req); err != nil || reply.Token == 0 {
				t.Fatal(reply, err)
			}
			time.Sleep(tellAgain) // the server may be the last that is told
			if got := time.Duration(m.last.Load()); got < req.MinHold-time.Second || got > req.MinHold {
				t.Errorf("the minimum hold is %v, not %v", got, req.MinHold)
			}
			if i == 0 { // a try that fails in between changes nothing
				bound, cancel := context.WithCancel(t.Context())
				cancel()
				if reply, err := s.Acquire(bound, req); err == nil {
					t.Fatal(reply)
				}
			}
			time.Sleep(2 * s.ttl)
		}
	})
}

// TestMinimumOfAnEarlyVote: server 0 has granted the request long before the others did, so its minimum hold is over
// there. The release keeps the name at all servers for what is left since a majority had granted it.
func TestMinimumOfAnEarlyVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := holdingFor(t, 3, time.Hour)
		renews(t, s, s.endpoints[2], h) // all have it
		w.mu.Lock()
		w.servers[0].kept = time.Now()
		w.mu.Unlock()
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, v := range w.servers {
			if v.advance(0); v.token == 0 {
				t.Errorf("server %d does not keep the name", i)
			}
		}
	})
}

// TestReleaseAfterABreakOfFive: servers 3 and 4 are away. An operator has ended the grant at servers 1 and 2, and the
// holder knows of server 2. Then both owe answers. The release must not be successful with the answer of server 0.
func TestReleaseAfterABreakOfFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(5)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		for _, p := range s.endpoints[3:] {
			put(p, down{p.at()})
		}
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		w.mu.Lock()
		w.servers[1].drop()
		w.servers[2].drop()
		w.mu.Unlock()
		r := s.find("a")
		r.mu.Lock()
		r.gone(2, s.stamp.Add(1))
		r.votes[2].ended = true // as learn
		r.mu.Unlock()
		for _, p := range s.endpoints[1:3] {
			put(p, &owing{member: p.at(), owes: true})
		}
		bound, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := s.Release(bound, h, 0); err == nil {
			t.Error("the release was successful")
		}
	})
}

// TestMinimumOfALateServer: a server gets the grant ten minutes after the others. Then the client falls
// silent. No server keeps the name for longer than the minimum hold since the grant.
func TestMinimumOfALateServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minimum, late = time.Hour, 10 * time.Minute
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: minimum}
		p := s.endpoints[newRequest(req, 3).order[2]]
		m := &cut{member: p.at()}
		m.off.Store(true)
		put(p, m)
		began := time.Now()
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		for time.Since(began) < late {
			renews(t, s, p, h)
		}
		if n := w.has("a"); n != 2 {
			t.Fatalf("%d servers have the lease", n)
		}
		m.off.Store(false)
		renews(t, s, p, h)
		renews(t, s, p, h)
		if n := w.has("a"); n != 3 {
			t.Fatalf("%d servers have the lease", n)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, v := range w.servers {
			if d := v.kept.Sub(began); d < minimum || d > minimum+time.Second {
				t.Errorf("server %d keeps the name for %v after the grant", i, d)
			}
		}
	})
}

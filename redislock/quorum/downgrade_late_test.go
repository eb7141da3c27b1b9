package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// downgrading is a server that counts its downgrades. late makes the next request arrive without an
// answer.
type downgrading struct {
	member
	n    atomic.Int32
	late atomic.Bool
}

func (d *downgrading) Downgrade(context.Context, driver.Hold) error {
	d.n.Add(1)
	return nil
}

func (d *downgrading) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	if d.late.CompareAndSwap(true, false) {
		<-ctx.Done()
		return driver.Reply{}, 0, driver.ErrUncertain
	}
	return d.member.Ask(ctx, req, propose)
}

// TestDowngradedLater: a writer has asked a server without an answer when it becomes a reader. The server
// may have granted a write lease to that request, which the reader's request finds. So it is downgraded.
func TestDowngradedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		defer func() { _, _ = s.Close(context.Background()), s.b.Close() }()
		all := make([]*downgrading, 3)
		for i, p := range s.endpoints {
			all[i] = &downgrading{member: p.at()}
			here := member(all[i])
			p.here.Store(&here)
		}
		req := driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, ReadWrite: true}
		last := newRequest(&req, 3).order[2]
		all[last].late.Store(true)
		reply, err := s.Acquire(t.Context(), &req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		time.Sleep(2 * completeAfter)
		if all[last].late.Load() {
			t.Fatal("the server was not asked")
		}
		if err := s.Downgrade(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			renews(t, s, s.endpoints[last], h)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.servers[last].token == 0 || all[last].n.Load() == 0 {
			t.Errorf("server %d: token %d, %d downgrades", last, w.servers[last].token, all[last].n.Load())
		}
	})
}

// lateEnd is a server that the first cancellation of a request reaches only when arrive is called.
type lateEnd struct {
	downgrading
	arrive func()
}

func (m *lateEnd) Withdraw(ctx context.Context, name, id string, limit uint64) (uint64, error) {
	if m.arrive != nil {
		return m.member.Withdraw(ctx, name, id, limit)
	}
	m.arrive = func() { _, _ = m.member.Withdraw(context.Background(), name, id, limit) }
	return 0, driver.ErrUncertain
}

func (m *lateEnd) Cancel(ctx context.Context, name, id string) error {
	if m.arrive != nil {
		return m.member.Cancel(ctx, name, id)
	}
	m.arrive = func() { _ = m.member.Cancel(context.Background(), name, id) }
	return driver.ErrUncertain
}

// TestDowngradedWithALateEnd: a writer becomes a reader, and takes its request back from a server that has not
// answered it. That message arrives when the server has granted the reader a share. It does not end that.
func TestDowngradedWithALateEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		req := driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, ReadWrite: true}
		last := newRequest(&req, 3).order[2]
		var m *lateEnd
		for i, p := range s.endpoints {
			all := &lateEnd{downgrading: downgrading{member: p.at()}}
			if i == last {
				m = all
			}
			put(p, all)
		}
		m.late.Store(true)
		reply, err := s.Acquire(t.Context(), &req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
		time.Sleep(2 * completeAfter)
		if err := s.Downgrade(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			renews(t, s, s.endpoints[last], h)
		}
		has := func() uint64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.servers[last].token
		}
		if m.arrive == nil || has() == 0 {
			t.Fatalf("server %d: token %d, arrive %v", last, has(), m.arrive != nil)
		}
		m.arrive()
		if has() == 0 {
			t.Error("a late message has ended the reader's grant")
		}
	})
}

// refusesLate is a server whose first answer, a refusal, and whose answer to a withdrawal take 25 ms. It counts
// cancellations.
type refusesLate struct {
	downgrading
	asked, cancelled atomic.Int32
}

func (m *refusesLate) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	if m.asked.Add(1) == 1 {
		time.Sleep(25 * time.Millisecond)
		return driver.Reply{Holder: &driver.Holder{ID: "z", Token: 1}, Retry: time.Second}, 0, nil
	}
	return m.downgrading.Ask(ctx, req, propose)
}

func (m *refusesLate) Withdraw(ctx context.Context, name, id string, limit uint64) (uint64, error) {
	time.Sleep(25 * time.Millisecond)
	return m.member.Withdraw(ctx, name, id, limit)
}

func (m *refusesLate) Cancel(ctx context.Context, name, id string) error {
	m.cancelled.Add(1)
	return m.member.Cancel(ctx, name, id)
}

// TestDowngradedBesideAQuestion: a writer becomes a reader while a question is under way at one server. The request
// goes on, so that server gets no cancellation: it might end the grant that the reader gets there next.
func TestDowngradedBesideAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, ReadWrite: true}
		s.noteContended("x", 0) // all are asked at once
		order := newRequest(req, 3).order
		for _, i := range order[:2] {
			put(s.endpoints[i], &downgrading{member: s.endpoints[i].at()})
		}
		m := &refusesLate{downgrading: downgrading{member: s.endpoints[order[2]].at()}}
		put(s.endpoints[order[2]], m)
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		if err := s.Downgrade(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := m.cancelled.Load(); n > 0 {
			t.Errorf("%d cancellations of a request that is held", n)
		}
	})
}

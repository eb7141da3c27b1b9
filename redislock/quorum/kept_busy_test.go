package quorum

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// three is simulated with three servers. All ends with the test.
func three(t *testing.T) (*world, *session) {
	w, s := simulated(3)
	t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
	return w, s
}

// votesFor gives server i to a request that waits or tries, with a lease that ends then.
func (w *world) votesFor(s *session, i int, id string, hold, lease time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := s.endpoints[i].at().(*simMember)
	w.servers[i].give(simPlace{id, 0, 1, time.Now().Add(time.Hour), hold, m}, time.Now().Add(lease), 0)
}

// keepsFor makes server i keep the name for a request that was released.
func (w *world) keepsFor(s *session, i int, id string, hold time.Duration) {
	w.votesFor(s, i, id, hold, time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[i].end = time.Time{}
}

// keeps reports whether server i keeps the name for the request after its release.
func (w *world) keeps(i int, id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.servers[i]
	v.advance(0)
	return v.token != 0 && v.holder.id == id && !v.held()
}

// grantedAtTwo takes the name x for a, with a minimum hold of an hour.
func grantedAtTwo(t *testing.T, w *world, s *session) driver.Hold {
	t.Helper()
	req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
	reply, err := s.Acquire(t.Context(), req)
	if n := w.has("a"); err != nil || reply.Token == 0 || n != 2 {
		t.Fatal(reply, err, n)
	}
	return driver.Hold{Name: "x", ID: "a", Token: reply.Token}
}

// TestKeptAtABusyServer: another request has server 2 when the name is released, for a second, or for as
// long as nobody asks it to give way. Server 2 must keep the name, too: otherwise the minimum hold ends if
// one of the others loses its data.
func TestKeptAtABusyServer(t *testing.T) {
	for name, lease := range map[string]time.Duration{"for a second": time.Second, "until it gives way": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := three(t)
				w.votesFor(s, 2, "c", 0, lease)
				c := &driver.Request{ID: "c", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}
				r, err := s.register(c, driver.Hold{})
				if err != nil {
					t.Fatal(err)
				}
				w.mu.Lock()
				token := w.servers[2].token
				w.mu.Unlock()
				if lease > time.Second {
					r.mu.Lock()
					r.since = s.term(s.stamp.Add(1), 0)
					r.granted(2, r.since, token)
					r.mu.Unlock()
				}
				h := grantedAtTwo(t, w, s)
				if err := s.Release(t.Context(), h, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				for i := range 3 {
					if !w.keeps(i, "a") {
						t.Errorf("server %d does not keep the name", i)
					}
				}
			})
		})
	}
}

// TestMinimumOfADeadWaiter: a waiter that has server 2 dies. Its minimum hold goes on there, though it never
// had the lock. The holder must get the server when the waiter's lease is over.
func TestMinimumOfADeadWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 2, "c", time.Hour, s.ttl/2)
		h := grantedAtTwo(t, w, s)
		for range 4 {
			renews(t, s, s.endpoints[2], h)
		}
		time.Sleep(time.Second)
		if n := w.has("a"); n != 3 {
			t.Errorf("%d servers have granted the request", n)
		}
	})
}

// TestMinimumAtAServerThatWasBusy: another request has server 2 when the name is granted, and soon gives way.
// Server 2 must know the minimum hold long before the first renewal: the holder may die.
func TestMinimumAtAServerThatWasBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 2, "c", 0, time.Second)
		grantedAtTwo(t, w, s)
		time.Sleep(2 * time.Second)
		if n := w.has("a"); n != 3 {
			t.Errorf("%d servers have granted the request", n)
		}
	})
}

// TestCancelAfterABreak: an operator has ended the grant at a majority, and server 2 has not answered the
// request yet. Later cancellations must reach server 2: the request may still arrive there.
func TestCancelAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		m := &noting{member: s.endpoints[2].at(), ids: map[string]bool{}}
		put(s.endpoints[2], silentAsk{m})
		h := grantedAtTwo(t, w, s)
		for _, v := range w.servers[:2] {
			w.mu.Lock()
			v.drop()
			w.mu.Unlock()
		}
		if err := s.Release(t.Context(), h, 0); !driver.IsOver(err) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		m.mu.Lock()
		clear(m.ids)
		m.mu.Unlock()
		if err := s.Cancel(t.Context(), "x", "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.ids["a"] {
			t.Error("server 2 was spared")
		}
	})
}

// TestFailedAdoptionIsForgotten: a session knows a request until its release, also if the adoption failed.
func TestFailedAdoptionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		h := driver.Hold{Name: "x", ID: "giver", Token: 7}
		adopts := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
		if _, err := s.register(adopts, h); err != nil {
			t.Fatal(err)
		}
		_ = s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: 7}, 0)
		if s.find("a") != nil {
			t.Error("the session still knows the request")
		}
	})
}

// cancels is a server that gets a late cancellation before the first release.
type cancels struct {
	member
	once sync.Once
}

func (m *cancels) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	m.once.Do(func() { _ = m.member.Cancel(ctx, h.Name, h.ID) })
	return m.member.Pass(ctx, h, keep, propose)
}

// TestKeptBesideACancellation: a cancellation ends the grant at server 2 before the name is kept there. The
// session asks again.
func TestKeptBesideACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 2, "c", 0, grace)
		h := grantedAtTwo(t, w, s)
		put(s.endpoints[2], &cancels{member: s.endpoints[2].at()})
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if !w.keeps(2, "a") {
			t.Error("server 2 does not keep the name")
		}
	})
}

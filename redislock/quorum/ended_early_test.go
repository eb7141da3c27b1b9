package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// endedAtTwo: only server 2 has granted the waiting request a, and that grant ends; c keeps the name there. A renewal
// reports that, and that a waits at servers 0 and 1, which b has.
// silent: server 1 does not answer the renewal.
func endedAtTwo(t *testing.T, minHold, keep, lease time.Duration, silent bool) (*world, *session, driver.Reply) {
	w, s := three(t)
	for i := range 2 {
		w.votesFor(s, i, "b", 0, lease)
	}
	req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: minHold}
	reply, err := s.Acquire(t.Context(), req)
	if n := w.has("a"); err != nil || reply.Token != 0 || n != 1 {
		t.Fatal(reply, err, n)
	}
	w.keepsFor(s, 2, "c", keep)
	time.Sleep(10 * time.Second)
	dies := func(dead bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.servers[1].dead = dead
	}
	dies(silent)
	changes, err := s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}})
	if !silent && (err != nil || len(changes) != 1 || changes[0].State != driver.Waiting) {
		t.Fatal(changes, err)
	}
	dies(false)
	return w, s, reply
}

// TestVoteEndedBeforeTheGrant: later a majority grants the request, as a renewal finds. The session claims server 2
// soon, and not only at the next renewal: until then the minimum hold depends on a bare majority.
func TestVoteEndedBeforeTheGrant(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, s, _ := endedAtTwo(t, time.Hour, time.Hour, 20*time.Second, silent)
			time.Sleep(10 * time.Second) // b's lease is over
			if changes, err := s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}}); err != nil || len(changes) != 1 ||
				changes[0].State != driver.Granted {
				t.Fatal(changes, err)
			}
			time.Sleep(time.Second)
			if n := w.has("a"); n != 3 {
				t.Errorf("server 1 was silent: %v; %d servers have granted the request; want 3", silent, n)
			}
		})
	}
}

// pushedAfterTwo is endedAtTwo; then b releases, and servers 0 and 1 push the grant before the next renewal.
func pushedAfterTwo(t *testing.T, minHold, keep time.Duration) (*world, *session, driver.Hold) {
	w, s, reply := endedAtTwo(t, minHold, keep, time.Hour, false)
	time.Sleep(5 * time.Second)
	propose := s.clock.propose()
	w.mu.Lock()
	for _, v := range w.servers[:2] {
		v.drop()
		v.advance(propose)
	}
	w.mu.Unlock()
	token := <-reply.Wake
	if token == 0 {
		t.Fatal("woken to ask again")
	}
	return w, s, driver.Hold{Name: "x", ID: "a", Token: token}
}

// TestVoteEndedBeforeThePush: the session claims server 2 soon.
func TestVoteEndedBeforeThePush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := pushedAfterTwo(t, time.Hour, time.Hour)
		time.Sleep(time.Second)
		if n := w.has("a"); n != 3 {
			t.Errorf("%d servers have granted the request; want 3", n)
		}
	})
}

// TestReleasedAfterAnEndedVote: the name is released at once. Server 2 keeps it, too, as soon as it can: one of the
// others may lose its data.
func TestReleasedAfterAnEndedVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := pushedAfterTwo(t, time.Hour, 30*time.Second)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			if !w.keeps(i, "a") {
				t.Errorf("server %d does not keep the name", i)
			}
		}
	})
}

// TestServerDiesAfterAnEndedVote: server 1 dies right after the grant. The renewals find a majority with server 2.
func TestServerDiesAfterAnEndedVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, h := pushedAfterTwo(t, 0, time.Hour)
		w.mu.Lock()
		w.servers[1].dead = true
		w.mu.Unlock()
		for i := range 8 {
			time.Sleep(s.ttl / 20)
			changes, err := s.Renew(t.Context(), []driver.Hold{h})
			if i > 1 && (err != nil || len(changes) != 0) {
				t.Errorf("renewal %d: %+v, %v", i, changes, err)
			}
		}
	})
}

// crossing is a server that renewals reach late, and that answers questions late.
type crossing struct {
	member
	renewReaches, askAnswers time.Duration
}

func (m crossing) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	time.Sleep(m.renewReaches)
	return m.member.Renew(ctx, holds)
}

func (m crossing) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	reply, place, err := m.member.Ask(ctx, req, propose)
	time.Sleep(m.askAnswers)
	return reply, place, err
}

// TestBrokenBeforeTheLastAnswer: a renewal and an Acquire of a waiting request cross. Servers 1 to 3 of five grant the
// Acquire. Before the last answer an operator breaks the grant at servers 0 to 2, and the renewal finds that at server
// 0. The session must not ask server 0 again for a grant that an operator has ended.
func TestBrokenBeforeTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(5)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		for i := range 5 {
			w.votesFor(s, i, "b", 0, time.Hour)
		}
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true, MinHold: time.Hour}
		if reply, err := s.Acquire(t.Context(), req); err != nil || reply.Token != 0 {
			t.Fatal(reply, err)
		}
		drop := func(lose float64, of ...int) { // the pushes of the next grants get lost or not
			propose := s.clock.propose()
			w.mu.Lock()
			before := w.lose
			w.lose = lose
			for _, i := range of {
				w.servers[i].drop()
				w.servers[i].advance(propose)
			}
			w.mu.Unlock()
			synctest.Wait()
			w.mu.Lock()
			w.lose = before
			w.mu.Unlock()
		}
		drop(0, 0) // b loses server 0
		time.Sleep(5 * time.Second)
		const renews = 80 * time.Millisecond
		for i, c := range []crossing{{nil, 30 * time.Millisecond, 500 * time.Millisecond}, {nil, renews, 0}, {nil, renews, 0},
			{nil, renews, 40 * time.Millisecond}, {nil, renews, 0}} {
			c.member = s.endpoints[i].at()
			put(s.endpoints[i], c)
		}
		go func() { _, _ = s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a"}}) }()
		time.Sleep(9 * time.Millisecond)
		drop(1, 1, 2, 3) // b releases
		tokens := make(chan uint64, 1)
		go func() {
			reply, _ := s.Acquire(t.Context(), req)
			tokens <- reply.Token
		}()
		time.Sleep(18 * time.Millisecond)
		drop(0, 0, 1, 2) // the operator
		token := <-tokens
		if token == 0 {
			t.Fatal("no majority")
		}
		time.Sleep(100 * time.Millisecond)
		drop(0, 4)
		time.Sleep(time.Second)
		changes, err := s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a", Token: token}})
		if len(changes) != 1 || changes[0].State != driver.Gone {
			t.Errorf("the broken grant lives: %+v, %v", changes, err)
		}
	})
}

package quorum

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// minimums is a server that notes the last minimum hold that it was asked for.
type minimums struct {
	member
	last atomic.Int64
	fail func() error // of Keep
}

func (m *minimums) Keep(ctx context.Context, h driver.Hold, upTo uint64, left time.Duration) error {
	if m.fail != nil {
		if err := m.fail(); err != nil {
			return err
		}
	}
	m.last.Store(int64(left))
	return m.member.Keep(ctx, h, upTo, left)
}

func (m *minimums) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	m.last.Store(int64(req.MinHold))
	return m.member.Ask(ctx, req, propose)
}

// TestMinimumOfAMajority: a request that does not wait asks for its minimum hold when a majority has granted it. So a
// server that grants a refused one late, after its client has ended, does not keep the name.
func TestMinimumOfAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		var servers []*minimums
		for i, p := range s.endpoints {
			servers = append(servers, &minimums{member: p.at()})
			put(p, servers[i])
		}
		req := func(id string) *driver.Request {
			return &driver.Request{ID: id, Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		}
		if reply, err := s.Acquire(t.Context(), req("a")); err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		told := 0
		for i, m := range servers {
			if time.Duration(m.last.Swap(0)) > 59*time.Minute {
				told++
			}
			w.mu.Lock()
			kept := time.Until(w.servers[i].kept)
			w.mu.Unlock()
			if kept > 0 && kept < 59*time.Minute {
				t.Errorf("server %d keeps the name for %v", i, kept)
			}
		}
		if told < 2 {
			t.Errorf("%d servers were told the minimum hold before the caller heard of the grant", told)
		}
		time.Sleep(time.Second)
		for _, m := range servers {
			m.last.Store(0)
		}
		if reply, err := s.Acquire(t.Context(), req("b")); err != nil || reply.Token != 0 {
			t.Fatal(reply, err)
		}
		for i, m := range servers {
			if got := time.Duration(m.last.Load()); got != 0 {
				t.Errorf("refused: server %d was asked for a minimum hold of %v", i, got)
			}
		}
	})
}

// TestMinimumMissedByOne: a server has granted the request, and misses its minimum hold. It is told again.
func TestMinimumMissedByOne(t *testing.T) {
	for what, err := range map[string]error{"unavailable": driver.ErrUnavailable, "uncertain": driver.ErrUncertain} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := simulated(3)
				t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
				missed := false
				put(s.endpoints[2], &minimums{member: s.endpoints[2].at(), fail: func() error {
					if missed {
						return nil
					}
					missed = true
					return err
				}})
				req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
				reply, err := s.Acquire(t.Context(), req)
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				for range 3 {
					time.Sleep(s.ttl / 3)
					renews(t, s, s.endpoints[2], driver.Hold{Name: "x", ID: "a", Token: reply.Token})
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				for i, v := range w.servers {
					if d := time.Until(v.kept); d < 57*time.Minute {
						t.Errorf("server %d keeps the name for %v", i, d)
					}
				}
			})
		})
	}
}

// TestMinimumUnknown: too few servers record the minimum hold. The caller does not hear of a grant.
// Nothing is sent when the caller has given up.
func TestMinimumUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		down := func() error { return driver.ErrUnavailable }
		for _, p := range s.endpoints[1:] {
			put(p, &minimums{member: p.at(), fail: down})
		}
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		if reply, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUncertain) || reply.Token != 0 {
			t.Errorf("%v, %v", reply, err)
		}
		r := s.find("a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.setMinimum(ctx, r); !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("after the caller has given up: %v", err)
		}
	})
}

// TestMinimumOfAnEarlierGrant: a message about the minimum hold of a grant is late. The grant has been cancelled
// since, and a late question has got another one under the same ID. The message does not keep the name.
func TestMinimumOfAnEarlierGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		m := s.endpoints[2].at()
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
		first, _, err := m.Ask(t.Context(), req, 0)
		if err != nil || first.Token == 0 {
			t.Fatal(first, err)
		}
		if err := m.Cancel(t.Context(), "x", "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		later, _, err := m.Ask(t.Context(), req, 0)
		if err != nil || later.Token <= first.Token {
			t.Fatal(later, err)
		}
		err = m.Keep(t.Context(), driver.Hold{Name: "x", ID: "a", Token: first.Token}, first.Token, time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		if d := time.Until(w.servers[2].kept); d > 0 || !errors.Is(err, driver.ErrGone) {
			t.Errorf("%v; the server keeps the name for %v", err, d)
		}
	})
}

// TestMinimumAfterCompletion: a server that has missed the question of a grant is asked later. That question has no
// minimum hold: it might arrive after a release. The server is told the minimum hold as soon as it has granted.
func TestMinimumAfterCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		way := &cut{member: s.endpoints[2].at()}
		third := &minimums{member: way}
		put(s.endpoints[2], third)
		way.off.Store(true)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		time.Sleep(time.Second)
		way.off.Store(false)
		asked := make(chan time.Duration, 10)
		third.fail = func() error { asked <- time.Duration(third.last.Load()); return nil }
		renews(t, s, s.endpoints[2], driver.Hold{Name: "x", ID: "a", Token: reply.Token})
		time.Sleep(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if d := time.Until(w.servers[2].kept); d < 58*time.Minute {
			t.Errorf("the third server keeps the name for %v", d)
		}
		if d := <-asked; d != 0 {
			t.Errorf("it was asked with a minimum hold of %v", d)
		}
	})
}

// TestMinimumToldAgain: two servers do not answer when they are told the minimum hold for the first time. They are
// told again soon, and the caller hears of the grant. If they never answer, the error says so.
func TestMinimumToldAgain(t *testing.T) {
	for _, silent := range []int32{1, 1000} { // so many times
		synctest.Test(t, func(t *testing.T) {
			_, s := simulated(3)
			t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
			for _, p := range s.endpoints[1:] {
				var told atomic.Int32
				put(p, &minimums{member: p.at(), fail: func() error {
					if told.Add(1) <= silent {
						time.Sleep(askLimit)
						return driver.ErrUncertain
					}
					return nil
				}})
			}
			req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
			reply, err := s.Acquire(t.Context(), req)
			switch {
			case silent == 1 && (err != nil || reply.Token == 0):
				t.Errorf("%+v, %v", reply, err)
			case silent > 1 && (!errors.Is(err, driver.ErrUncertain) ||
				!strings.HasSuffix(err.Error(), "the others have not answered for 1s")):
				t.Errorf("two servers are silent: %+v, %v", reply, err)
			}
		})
	}
}

// TestMinimumOfAForgottenGrant: each server in turn forgets a grant, and grants it anew at the next renewal. It is
// told the minimum hold again.
func TestMinimumOfAForgottenGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: 10 * time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		time.Sleep(time.Second)
		for i, p := range s.endpoints {
			w.mu.Lock()
			v := w.servers[i]
			v.token, v.holder, v.kept, v.end = 0, simPlace{}, time.Time{}, time.Time{}
			w.mu.Unlock()
			for range 3 {
				renews(t, s, p, driver.Hold{Name: "x", ID: "a", Token: reply.Token})
				time.Sleep(s.ttl / 4)
			}
			w.mu.Lock()
			if v.token == 0 || time.Until(v.kept) < 9*time.Hour {
				t.Errorf("server %d: token %d, the name is kept for %v", i, v.token, time.Until(v.kept))
			}
			w.mu.Unlock()
		}
	})
}

// TestMinimumAfterAPush: another request has the third server at first. When that has ended, the server grants, and
// is told the minimum hold at once.
func TestMinimumAfterAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := simulated(3)
		t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
		w.votesFor(s, 2, "z", 0, time.Second)
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		v := w.servers[2]
		time.Sleep(2 * time.Second)
		w.mu.Lock()
		v.advance(0)
		w.mu.Unlock()
		time.Sleep(time.Second) // no renewal comes
		w.mu.Lock()
		defer w.mu.Unlock()
		if v.holder.id != "a" || time.Until(v.kept) < 59*time.Minute {
			t.Errorf("the third server has granted %q, and keeps the name for %v", v.holder.id, time.Until(v.kept))
		}
	})
}

// TestMinimumOfAMoment: a minimum hold is over before two servers have recorded it. The caller hears of the grant.
func TestMinimumOfAMoment(t *testing.T) {
	for _, minimum := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			_, s := simulated(3)
			t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
			for _, p := range s.endpoints[1:] {
				put(p, &minimums{member: p.at(), fail: func() error {
					time.Sleep(2 * grace)
					return driver.ErrUncertain
				}})
			}
			req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: minimum}
			if reply, err := s.Acquire(t.Context(), req); err != nil || reply.Token == 0 {
				t.Errorf("%v: %+v, %v", minimum, reply, err)
			}
		})
	}
}

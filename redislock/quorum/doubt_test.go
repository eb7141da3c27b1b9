package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// hooked is a server whose answers to questions and renewals a test replaces.
type hooked struct {
	member
	ask   func(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error)
	renew func(context.Context, []driver.Hold) ([]driver.Change, error)
}

func (m hooked) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	if m.ask != nil {
		return m.ask(ctx, req, propose)
	}
	return m.member.Ask(ctx, req, propose)
}

func (m hooked) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if m.renew != nil {
		return m.renew(ctx, holds)
	}
	return m.member.Renew(ctx, holds)
}

func unreachable(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error) {
	return driver.Reply{}, 0, driver.ErrUnavailable
}

// doesWithoutAnswer does what m is asked, and the answer gets lost.
func doesWithoutAnswer(m member) func(context.Context, *driver.Request, uint64) (driver.Reply, uint64, error) {
	return func(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
		_, _, _ = m.Ask(ctx, req, propose)
		time.Sleep(time.Second)
		return driver.Reply{}, 0, driver.ErrUncertain
	}
}

// mustNotSucceed releases the grant of a, which servers 0 and 2 still have: they get neither releases nor
// cancellations.
func mustNotSucceed(t *testing.T, w *world, s *session) {
	t.Helper()
	for _, i := range []int{0, 2} {
		put(s.endpoints[i], silentEnd{s.endpoints[i].at()})
	}
	h := driver.Hold{Name: "x", ID: "a", Token: s.agreedOn()}
	if err := s.Release(t.Context(), h, 0); h.Token == 0 || err == nil && w.has("a") >= 2 {
		t.Errorf("released under %d; %d servers still have the grant", h.Token, w.has("a"))
	}
}

var (
	waits  = &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}
	places = []driver.Hold{{Name: "x", ID: "a"}}
)

// TestReleaseAfterAnOlderAnswer: server 0 has lost the place of a, as a renewal reports late. Meanwhile the caller has
// asked again: the server grants that, and the answer gets lost. Another question cannot be sent.
func TestReleaseAfterAnOlderAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		for i := range 3 {
			w.votesFor(s, i, "c", 0, time.Hour)
		}
		if _, err := s.Acquire(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p := s.endpoints[0]
		here := p.at()
		w.mu.Lock()
		w.servers[0].queue = nil
		w.mu.Unlock()
		put(p, hooked{member: here, ask: doesWithoutAnswer(here),
			renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
				changes, err := here.Renew(ctx, holds)
				time.Sleep(40 * time.Millisecond)
				return changes, err
			}})
		go func() { _, _ = s.Renew(t.Context(), places) }()
		time.Sleep(15 * time.Millisecond)
		w.releases(s, 0, 1, 2)
		_, _ = s.Acquire(t.Context(), waits)
		time.Sleep(2 * time.Second)
		p.slow.Store(0)
		put(p, hooked{member: here, ask: unreachable,
			renew: func(context.Context, []driver.Hold) ([]driver.Change, error) { return nil, driver.ErrUnavailable }})
		_, _ = s.Renew(t.Context(), []driver.Hold{{Name: "x", ID: "a", Token: s.agreedOn()}})
		time.Sleep(time.Second)
		mustNotSucceed(t, w, s)
	})
}

// TestReleaseAfterQuestionsInTheOtherOrder: of two questions to server 0 the newer one is sent first, and cannot be
// sent. The server grants the older one, and its answer gets lost.
func TestReleaseAfterQuestionsInTheOtherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		p := s.endpoints[0]
		here := p.at()
		put(p, down{here})
		if reply, err := s.Acquire(t.Context(), waits); err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		time.Sleep(time.Second)
		r, n := s.find("a"), 0
		put(p, hooked{member: here, ask: func(ctx context.Context, req *driver.Request, propose uint64) (
			driver.Reply, uint64, error) {
			if n++; n > 1 {
				return doesWithoutAnswer(here)(ctx, req, propose)
			}
			time.Sleep(10 * time.Millisecond)
			return unreachable(ctx, req, propose)
		}})
		older, newer := s.stamp.Add(1), s.stamp.Add(1)
		s.askOne(r, p, newer, s.clock.propose())
		synctest.Wait()
		s.askOne(r, p, older, s.clock.propose())
		time.Sleep(2 * time.Second)
		mustNotSucceed(t, w, s)
	})
}

// overtakenYield is a server that a yield reaches when gate is closed.
type overtakenYield struct {
	member
	gate chan struct{}
}

func (m overtakenYield) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	<-m.gate
	return m.member.Yield(ctx, h, to, place, block)
}

// TestQuestionBeforeAYield: server 0 has granted a, which yields it to b. A question, or a renewal, overtakes the
// yield, and its answer comes after that of the yield. The place that the yield gave must stay: b releases, and a
// must hear that.
func TestQuestionBeforeAYield(t *testing.T) {
	for _, renews := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, s, p := claimedAtZero(t)
			here, two := p.at(), s.endpoints[2].at()
			time.Sleep(3 * time.Second)
			gate := make(chan struct{})
			late := func() { close(gate); time.Sleep(40 * time.Millisecond) }
			put(p, overtakenYield{gate: gate, member: hooked{member: here,
				ask: func(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
					defer late()
					return here.Ask(ctx, req, propose)
				},
				renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
					defer late()
					return here.Renew(ctx, holds)
				}}})
			put(s.endpoints[2], hooked{member: two, ask: func(ctx context.Context, req *driver.Request, propose uint64) (
				driver.Reply, uint64, error) {
				time.Sleep(80 * time.Millisecond) // so the exchange listens until then
				return two.Ask(ctx, req, propose)
			}})
			s.claimed(p, "a", 0, "b")
			synctest.Wait() // the yield is on its way
			if renews {
				_, _ = s.Renew(t.Context(), places)
			} else if _, err := s.Acquire(t.Context(), waits); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
			put(p, here)
			w.releases(s, 1)
			time.Sleep(100 * time.Millisecond)
			w.releases(s, 0)
			time.Sleep(200 * time.Millisecond)
			if s.agreedOn() == 0 {
				t.Errorf("a renewal: %v; two servers have granted the request, and it is not told", renews)
			}
		})
	}
}

// raiseLost is a server whose connection is lost before a raise.
type raiseLost struct {
	member
	err error
}

func (m raiseLost) Raise(context.Context, driver.Hold, uint64, time.Duration) (uint64, time.Duration, error) {
	return 0, 0, m.err
}

// differing is a number of servers, of which the first in the order of the name x give larger tokens.
func differing(t *testing.T, servers, larger int, fails error) (*world, *session) {
	w, s := simulated(servers)
	t.Cleanup(func() { _ = s.Close(context.Background()); _ = s.b.Close() })
	w.mu.Lock()
	for k, i := range newRequest(waits, servers).order[:larger] {
		w.servers[i].last = w.servers[i].clock() + uint64(k+1)*500_000
	}
	w.mu.Unlock()
	for _, p := range s.endpoints {
		put(p, raiseLost{p.at(), fails})
	}
	return w, s
}

// TestRaiseNotSent: servers have granted the request under different tokens, and the raise cannot be sent, or is
// refused by few or by many servers. Nobody may take that for a request of which nothing was done. If the error is
// final, nothing is left.
func TestRaiseNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		servers, larger int
		fails, want     error
	}{
		"not sent":        {3, 1, driver.ErrUnavailable, driver.ErrUncertain},
		"refused by one":  {3, 1, driver.ErrRefused, driver.ErrUncertain},
		"refused by most": {4, 4, driver.ErrRefused, driver.ErrSpent},
	} {
		for _, wait := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w, s := differing(t, c.servers, c.larger, c.fails)
				req := *waits
				req.Wait = wait
				_, err := s.Acquire(t.Context(), &req)
				time.Sleep(time.Second)
				if n := w.has("a"); !errors.Is(err, c.want) || (n == 0) != errors.Is(c.want, driver.ErrSpent) {
					t.Errorf("%s, it waits: %v: %v, and %d servers have granted the request", name, wait, err, n)
				}
			})
		}
	}
}

// raiseSilent is a server that does not answer a raise.
type raiseSilent struct{ member }

func (raiseSilent) Raise(ctx context.Context, _ driver.Hold, _ uint64, _ time.Duration) (uint64, time.Duration, error) {
	<-ctx.Done()
	return 0, 0, driver.ErrUncertain
}

// TestContextDuringARaise: the caller's context ends while servers are silent. The error says so.
func TestContextDuringARaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := differing(t, 3, 1, nil)
		for _, p := range s.endpoints {
			put(p, raiseSilent{p.at().(raiseLost).member})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Acquire(ctx, waits)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUncertain) {
			t.Error(err)
		}
	})
}

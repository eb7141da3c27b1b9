package quorum

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// played is a server whose exchanges are done by functions, if there are any. They get the number of the exchange,
// from 1, and what the server does with it.
type played struct {
	member
	asks, passes, cancels atomic.Int32

	ask  func(ctx context.Context, n int32, do func() (driver.Reply, uint64, error)) (driver.Reply, uint64, error)
	pass func(n int32, do func() error) error
	down func() error
	// cancel gets only what the server does.
	cancel func(do func() error) error
}

func (m *played) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	n, do := m.asks.Add(1), func() (driver.Reply, uint64, error) { return m.member.Ask(ctx, req, propose) }
	if m.ask == nil {
		return do()
	}
	return m.ask(ctx, n, do)
}

func (m *played) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	n, do := m.passes.Add(1), func() error { return m.member.Pass(ctx, h, keep, propose) }
	if m.pass == nil {
		return do()
	}
	return m.pass(n, do)
}

func (m *played) Cancel(ctx context.Context, name, id string) error {
	m.cancels.Add(1)
	do := func() error { return m.member.Cancel(ctx, name, id) }
	if m.cancel == nil {
		return do()
	}
	return m.cancel(do)
}

func (m *played) Downgrade(ctx context.Context, h driver.Hold) error {
	if m.down == nil {
		return m.member.Downgrade(ctx, h)
	}
	return m.down()
}

// holds returns the grant of "a" at all servers.
func holds(t *testing.T, s *session) driver.Hold {
	t.Helper()
	reply, err := s.Acquire(t.Context(), &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1})
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	time.Sleep(2 * grace) // the session also takes the servers that it did not need
	return driver.Hold{Name: "x", ID: "a", Token: reply.Token}
}

// opensRelease leaves a cancellation at p that is not due: the release of another name is refused, and may be repeated.
func opensRelease(s *session, p *endpoint) {
	s.releaseBegins("other")
	s.missedRelease(p, "y", "other")
}

// TestDueBesideNotDue is TestMissedReleaseBesideADeadServer while the release of another name is open: a cancellation
// that is due does not wait for one that is not.
func TestDueBesideNotDue(t *testing.T) {
	for since := 5 * time.Second; since < 6*time.Second; since += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			_, s := three(t)
			req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1}
			order := newRequest(req, 3).order
			put(s.endpoints[order[2]], down{s.endpoints[order[2]].at()})
			p := s.endpoints[order[0]]
			opensRelease(s, p)
			time.Sleep(since)
			reply, err := s.Acquire(t.Context(), req)
			if err != nil || reply.Token == 0 {
				t.Fatal(reply, err)
			}
			put(p, &missing{once: true, member: p.at()})
			if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: reply.Token}, 0); err != nil {
				t.Fatal(err)
			}
			if d := freeAfter(t, s); d > 2*redial {
				t.Errorf("free after %v; the other release has been open for %v", d, since)
			}
		})
	}
}

// TestReleaseEndsPending: when a release ends, its cancellations are due, even if none has been for long.
func TestReleaseEndsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		p := s.endpoints[0]
		m := &played{member: p.at()}
		put(p, m)
		opensRelease(s, p)
		time.Sleep(modelTTL/3 - time.Second)
		if n := m.cancels.Load(); n > 0 {
			t.Errorf("%d cancellations before a third of the TTL", n)
		}
		s.releaseEnds("other")
		time.Sleep(2 * redial)
		if n := m.cancels.Load(); n != 1 {
			t.Errorf("%d cancellations %v after the end of the release", n, 2*redial)
		}
	})
}

// TestReleaseRefusedForLong: all servers refuse a release for half a TTL. Its caller repeats it each second, and it
// never looks as if the grant had ended.
func TestReleaseRefusedForLong(t *testing.T) {
	for offset := time.Duration(0); offset < time.Second; offset += 100 * time.Millisecond {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := three(t)
				h := holds(t, s)
				began := time.Now()
				until := began.Add(modelTTL/2 + offset)
				for _, p := range s.endpoints {
					put(p, &played{member: p.at(), pass: func(_ int32, do func() error) error {
						if time.Now().Before(until) {
							return driver.ErrRefused
						}
						return do()
					}})
				}
				for time.Now().Before(until) {
					if err := s.Release(t.Context(), h, 0); err == nil || driver.IsOver(err) {
						t.Fatalf("%v after the first try: %v", time.Since(began), err)
					}
					time.Sleep(time.Second)
				}
				if err := s.Release(t.Context(), h, 0); err != nil {
					t.Errorf("%v after the first try: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestCancelUnderWayBesideARepeatedRelease: a cancellation is due and under way when the caller comes back to repeat
// the release. It fails, and is not sent again as long as the caller goes on.
func TestCancelUnderWayBesideARepeatedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		h := holds(t, s)
		began := time.Now()
		silent := began.Add(modelTTL/3 + time.Second)
		refuses := began.Add(modelTTL/3 + 3*time.Second)
		for _, p := range s.endpoints {
			m := &played{member: p.at(), pass: func(_ int32, do func() error) error {
				if time.Now().Before(refuses) {
					return driver.ErrRefused
				}
				return do()
			}}
			m.cancel = func(do func() error) error {
				if time.Now().Before(silent) { // the exchange is under way for a second, and fails
					time.Sleep(time.Second)
					return driver.ErrUnavailable
				}
				return do()
			}
			put(p, m)
		}
		if err := s.Release(t.Context(), h, 0); err == nil {
			t.Fatal("released")
		}
		// The caller comes back half a second after a third of the TTL, and then each second.
		time.Sleep(modelTTL/3 + 500*time.Millisecond)
		for {
			err := s.Release(t.Context(), h, 0)
			if driver.IsOver(err) {
				t.Fatalf("%v after the first try: %v", time.Since(began), err)
			}
			if err == nil {
				return
			}
			time.Sleep(time.Second)
		}
	})
}

package holdfast

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// stickyIdle is a client with an idle grant of x, at a store that a test can make fail.
type stickyIdle struct {
	t     *testing.T
	store *memlock.Store
	c     *Client
	slept atomic.Int64
	log   strings.Builder
	ends  atomic.Int64 // leases whose end the Observer was told of
	token uint64       // of the last lease

	lost  chan struct{} // of the present session
	fails atomic.Bool   // nothing reaches the store, and nothing comes back
	slow  atomic.Int64  // how long a release is on its way

	acquired func() // called after the store has answered a request, before the client hears of it
}

func (s *stickyIdle) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	n, err := s.store.Open(ctx, cfg)
	s.lost = make(chan struct{})
	return &stickySession{n, s, s.lost}, err
}

type stickySession struct {
	driver.Session
	s    *stickyIdle
	lost chan struct{}
}

func (n *stickySession) Lost() <-chan struct{} { return n.lost }

func (n *stickySession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if n.s.fails.Load() {
		return driver.Reply{}, driver.ErrUnavailable
	}
	reply, err := n.Session.Acquire(ctx, r)
	if f := n.s.acquired; f != nil {
		f()
	}
	return reply, err
}

func (n *stickySession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if n.s.fails.Load() {
		return nil, driver.ErrUnavailable
	}
	return n.Session.Renew(ctx, holds)
}

func (n *stickySession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if n.s.fails.Load() {
		return driver.ErrUnavailable
	}
	time.Sleep(time.Duration(n.s.slow.Load()))
	return n.Session.Release(ctx, h, keep)
}

type stickyBackend struct {
	*memlock.Store
	s *stickyIdle
}

func (b stickyBackend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	return b.s.Open(ctx, cfg)
}

func newStickyIdle(t *testing.T) *stickyIdle {
	s := &stickyIdle{t: t, store: memlock.New()}
	cfg := &Config{TTL: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&s.log, nil)), Observer: &Observer{
		LeaseEnded: func(LeaseEnd) { s.ends.Add(1) },
		Lost:       func(string, uint64, Reason) { s.ends.Add(1) },
		Revoked:    func(string, uint64, Notice) { s.ends.Add(1) },
	}}
	c, err := newClient(t.Context(), stickyBackend{s.store, s}, cfg, func() time.Duration {
		return time.Duration(s.slept.Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.c = c
	s.take()
	if n := s.holders(); n != 1 {
		t.Fatalf("%d grants; want an idle one", n)
	}
	s.ends.Store(0)
	return s
}

func (s *stickyIdle) mutex() *Mutex { return s.c.Mutex("x", Sticky(time.Hour)) }

// take takes and releases x, and checks that the token grows.
func (s *stickyIdle) take() *Lease {
	s.t.Helper()
	l, err := s.mutex().Lock(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if l.token <= s.token {
		s.t.Errorf("token %d after %d", l.token, s.token)
	}
	s.token = l.token
	if err := l.Release(); err != nil {
		s.t.Error(err)
	}
	return l
}

func (s *stickyIdle) record() driver.Record {
	s.t.Helper()
	synctest.Wait()
	r, err := s.store.Inspect(s.t.Context(), "x")
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *stickyIdle) holders() int { return len(s.record().Holders) }

// quiet checks that nobody was told of the end of an idle grant.
func (s *stickyIdle) quiet() {
	s.t.Helper()
	synctest.Wait()
	if n := s.ends.Load(); n != 0 {
		s.t.Errorf("the Observer has heard of %d ends", n)
	}
	if text := s.log.String(); strings.Contains(text, "lease lost") {
		s.t.Errorf("the log has %q", text)
	}
}

// An idle grant that has ended, however it has, is reported to nobody. The next call asks the store.
func TestIdleGrantEnds(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, s *stickyIdle){
		"broken": func(t *testing.T, s *stickyIdle) {
			if err := s.store.Break(t.Context(), "x", s.record().Holders[0].Token); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second) // a renewal
		},
		"the session is over": func(t *testing.T, s *stickyIdle) {
			close(s.lost)
			synctest.Wait()
			time.Sleep(time.Second)
		},
		"no renewal succeeds": func(t *testing.T, s *stickyIdle) {
			s.fails.Store(true)
			time.Sleep(10 * time.Second)
			s.fails.Store(false)
		},
		"the machine has slept": func(t *testing.T, s *stickyIdle) {
			s.slept.Add(int64(10 * time.Second)) // nobody has noticed: the watcher looks once a second
		},
		"revoked": func(t *testing.T, s *stickyIdle) {
			if err := s.c.Revoke(t.Context(), "x", s.record().Holders[0].Token, "please"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second)
			if s.holders() != 0 {
				t.Error("it has not gone back")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStickyIdle(t)
				before := s.take().grantToken
				f(t, s)
				synctest.Wait()
				s.ends.Store(0)
				l, err := s.mutex().Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if l.grantToken <= before || l.token <= s.token || l.Err() != nil {
					t.Errorf("token %d of the grant %d, %v; want later than %d of the grant %d", l.token, l.grantToken, l.Err(),
						s.token, before)
				}
				s.quiet()
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An idle grant that was lost and is taken in the same instant: whoever is first decides.
func TestIdleGrantEndsBesideATake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		c := s.c
		c.mu.Lock()
		idle := c.leases[0]
		why := lost("use", &idle.req, ReasonEnded)
		c.endTree(idle, why, nil) // the watcher has ended it, and has not left the cohort yet
		c.mu.Unlock()
		if err := s.store.Break(t.Context(), "x", idle.grantToken); err != nil {
			t.Fatal(err)
		}
		got := make(chan *Lease)
		go func() {
			l, err := s.mutex().Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		select {
		case l := <-got:
			t.Fatalf("the grant %d, which has ended, was taken", l.grantToken)
		default:
		}
		c.afterLoss(idle, why)
		l := <-got
		if l.grantToken <= idle.grantToken {
			t.Errorf("the grant %d after %d", l.grantToken, idle.grantToken)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Renewals go on while the grant is idle, and those under way count for the call that takes it.
func TestIdleGrantIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		grant := s.take().grantToken
		for range 20 {
			time.Sleep(7 * time.Second)
			if l := s.take(); l.grantToken != grant {
				t.Fatalf("the grant %d; want %d, which was renewed", l.grantToken, grant)
			}
		}
	})
}

// A renewal that was sent while one grant was idle says nothing of a later one.
func TestRenewalOfAnEarlierIdleGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		c, n := s.c, s.c.session.Load()
		c.mu.Lock()
		r := c.renewalOf(n, nil)
		c.mu.Unlock()
		if err := s.store.Break(t.Context(), "x", r.leases[0].grantToken); err != nil {
			t.Fatal(err)
		}
		changes, err := n.Renew(t.Context(), r.holds)
		if err != nil || len(changes) != 1 {
			t.Fatalf("%v, %v; want one that is gone", changes, err)
		}
		c.calledBack("x", r.holds[0].ID)
		synctest.Wait()
		s.take()
		if err := c.apply(n, r, changes, nil); err != nil {
			t.Fatal(err)
		}
		l := s.take()
		if s.record().Holders[0].Token != l.grantToken {
			t.Error("the later grant has ended")
		}
		s.ends.Store(0)
		s.quiet()
	})
}

// The grant of a lease with a ticket is not kept.
func TestStickyAfterATicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		l, err := s.mutex().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Ticket(); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil || s.holders() != 0 {
			t.Errorf("%v; %d grants after the release of a lease with a ticket", err, s.holders())
		}
		s.take()
		l, err = s.mutex().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, adopted, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		other, err := New(t.Context(), s.store, &Config{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		a, err := other.Adopt(t.Context(), text)
		if err != nil || a.Token() != l.Token() {
			t.Errorf("%v; token %d", err, a.Token())
		}
		<-adopted
		if err := a.Release(); err != nil {
			t.Error(err)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.take()
	})
}

// Close gives an idle grant back, and no call takes it meanwhile.
func TestCloseWithAnIdleGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		if err := s.c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if s.holders() != 0 {
			t.Error("the store still has the grant")
		}
		if _, err := s.mutex().Lock(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
		s.quiet()
	})
}

// A client keeps nothing for names that it has given back.
func TestStickyLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		for range 200 {
			s.take()
		}
		s.c.calledBack("x", s.record().Holders[0].ID)
		synctest.Wait()
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		if n, m := len(s.c.cohorts), len(s.c.stickies); n != 0 || m != 0 || s.c.sticking.Load() != 0 || len(s.c.leases) != 0 {
			t.Errorf("%d cohorts, %d sticky ones, %d leases", n, m, len(s.c.leases))
		}
	})
}

// A reading of the clock that counts sleep stands for others for a moment, unless the wall clock has
// moved. What is returned is never earlier than that clock.
func TestTrueNow(t *testing.T) {
	read, slept := 0, time.Duration(0)
	c := &Client{start: time.Now(), awakeFor: awakeFor}
	at := time.Duration(0)
	c.boot = func() time.Duration { read++; return at + slept }
	check := func(what string, d time.Duration, reads int) {
		t.Helper()
		at += d
		before := read
		now := c.trueNow(c.start.Add(at))
		if now < at+slept || now > at+slept+2*awakeFor || read-before != reads {
			t.Errorf("%s: %v after %d readings; want %v and up to %v more, after %d", what, now, read-before, at+slept, 2*awakeFor, reads)
		}
	}
	check("at first", time.Hour, 1)
	check("at once", 0, 0)
	check("soon", awakeFor/2, 0)
	check("later", awakeFor, 1)
	check("soon again", awakeFor/3, 0)
	slept += 2 * time.Second
	c.awake.offset -= 2 * time.Second // the wall clock has moved on with it
	check("after a sleep", 0, 1)
	c.awake.offset += time.Hour
	check("the wall clock was set back", 0, 1)
}

package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

// spy records the sessions that a client opens.
type spy struct {
	driver.Backend
	mu  sync.Mutex
	all []driver.Session
}

func (s *spy) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	o, err := s.Backend.Open(ctx, cfg)
	if err == nil {
		s.mu.Lock()
		s.all = append(s.all, o)
		s.mu.Unlock()
	}
	return o, err
}

func (s *spy) last() driver.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[len(s.all)-1]
}

func spied(t testing.TB, cfg zklock.Config) (*holdfast.Client, *spy) {
	t.Helper()
	s := &spy{Backend: backend(t, cfg)}
	// A server may answer late to a client whose session ends: the client waits a quarter of this.
	const ttl = 20 * time.Second
	c, err := holdfast.New(within(t), s, &holdfast.Config{TTL: ttl})
	must(t, "New", err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c, s
}

// The servers end the session of a holder.
func TestExpiredWhileHolding(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	c, s := spied(t, cfg)
	z := newTree(t, server.Addr)
	for round := range 3 {
		l := lock(t, c, "x", holdfast.MinHold(time.Millisecond))
		r, err := c.RWMutex("rw").RLock(within(t))
		must(t, "RLock", err)
		ctx := l.Context(t.Context())
		server.Expire(zklock.Credentials(s.last()))
		for _, lease := range []*holdfast.Lease{l, r} {
			select {
			case <-lease.Done():
			case <-time.After(limit):
				t.Fatal("the loss was not reported")
			}
			var he *holdfast.Error
			if err := lease.Err(); !errors.Is(err, holdfast.ErrLost) || !errors.As(err, &he) ||
				he.Reason != holdfast.ReasonSession {
				t.Errorf("round %d: %v; want lost, session", round, err)
			}
		}
		<-ctx.Done()
		wants(t, "cause", context.Cause(ctx), holdfast.ErrLost)
		next := lock(t, c, "x")
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		wants(t, "Release of the lost", l.Release(), holdfast.ErrLost)
		if err := next.Err(); err != nil {
			t.Errorf("the release of the lost lease ended the next: %v", err)
		}
		must(t, "Release", next.Release())
	}
	z.empty(cfg.Root + "/x")
	z.empty(cfg.Root + "/rw")
}

// The servers end the session of a waiter: it joins the queue again, at the end.
func TestExpiredWhileWaiting(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	holder := client(t, cfg, longTTL)
	c, s := spied(t, cfg)
	z := newTree(t, server.Addr)
	for range 3 {
		l := lock(t, holder, "x")
		got := make(chan *holdfast.Lease, 1)
		go func() {
			l, err := c.Mutex("x").Lock(within(t))
			wants(t, "Lock", err, nil)
			got <- l
		}()
		until(t, "it waits", func() bool { return len(z.children(cfg.Root+"/x")) == 2 })
		old := s.last()
		server.Expire(zklock.Credentials(old))
		until(t, "it waits again", func() bool { return s.last() != old && len(z.children(cfg.Root+"/x")) == 2 })
		must(t, "Release", l.Release())
		l2 := <-got
		if l2 == nil {
			return
		}
		if l2.Token() <= l.Token() {
			t.Errorf("token %d after %d", l2.Token(), l.Token())
		}
		must(t, "Release", l2.Release())
	}
	z.empty(cfg.Root + "/x")
}

// A holder learns that it lost the lock before another client can have it.
func TestLossKnownBeforeNextGrant(t *testing.T) {
	t.Parallel()
	pairs, rounds := testenv.Rounds(2, 6), testenv.Rounds(2, 4)
	for _, c := range []struct {
		name  string
		begin func(*testenv.TCPProxy)
	}{
		{"hole", (*testenv.TCPProxy).Hole},
		{"refused", (*testenv.TCPProxy).Refuse},
		{"answers lost", (*testenv.TCPProxy).DropReplies},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, cfg := common(t)
			var all sync.WaitGroup
			for i := range pairs {
				proxy := testenv.Proxy(t, server.Addr)
				name := "x" + string(rune('0'+i))
				b := client(t, cfg, longTTL)
				all.Go(func() {
					t := beside{t}
					for range rounds {
						a := client(t, through(cfg, proxy), 600*time.Millisecond)
						checkLoss(t, a, b, name, func() { c.begin(proxy) })
						proxy.Heal()
					}
				})
			}
			all.Wait()
		})
	}
	t.Run("server frozen", func(t *testing.T) {
		t.Parallel()
		server := testenv.ZooKeeper(t, longSessions)
		a, b := client(t, on(server.Addr), 600*time.Millisecond), client(t, on(server.Addr), longTTL)
		for range rounds {
			checkLoss(t, a, b, "x", func() {
				server.Pause()
				time.Sleep(time.Second)
				server.Continue()
			})
		}
	})
}

// checkLoss lets a hold a lock and b wait for it, and calls harm, which cuts a off. When b gets the
// lock, a's lease must have ended.
func checkLoss(t testing.TB, a, b *holdfast.Client, name string, harm func()) {
	l := lock(t, a, name)
	got := make(chan struct{})
	go func() {
		defer close(got)
		var next *holdfast.Lease
		err := answered(t, func(ctx context.Context) (err error) { next, err = b.Mutex(name).Lock(ctx); return err })
		if err == nil && l.Err() == nil {
			t.Errorf("granted while the lease of token %d is valid", l.Token())
		}
		if err != nil {
			t.Errorf("Lock: %v", err)
		} else {
			if next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
			_ = next.Release() // it may be lost, too
		}
	}()
	time.Sleep(100 * time.Millisecond)
	harm()
	<-got
	select {
	case <-l.Done():
	case <-time.After(limit):
		t.Error("the loss was never reported")
	}
}

// However often a session is replaced, the client asks for the timeout of its configuration.
func TestTTLOfTheNextSession(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	c, s := spied(t, cfg)
	first := c.TTL()
	for range 3 {
		old := s.last()
		l := lock(t, c, "x")
		server.Expire(zklock.Credentials(old))
		<-l.Done()
		until(t, "another session", func() bool { return s.last() != old })
		if got := s.last().TTL(); got != first {
			t.Fatalf("the next session's TTL is %v; the first had %v", got, first)
		}
	}
}

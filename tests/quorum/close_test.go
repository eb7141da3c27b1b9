package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestCloseBesideLocks: a session is closed during many requests. It leaves nothing behind at any
// server, not even at a minority, and the requests fail.
func TestCloseBesideLocks(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	for round := range testenv.Rounds(8, 40) {
		b := g.backend(g.addrs())
		s := open(t, b, fmt.Sprint("s", round), time.Minute)
		var all sync.WaitGroup
		begun := make(chan struct{}, 64)
		for i := range 16 {
			all.Go(func() {
				for j := 0; ; j++ {
					r := try(fmt.Sprintf("x/%d/%d", i/2, j), fmt.Sprintf("s%d-%d-%d", round, i, j)) // two for each
					r.Wait = i%4 < 2
					if _, err := s.Acquire(within(t), r); errors.Is(err, driver.ErrClosed) {
						return
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		for range cap(begun) {
			<-begun
		}
		if err := s.Close(within(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
		all.Wait()
		for i := range g.servers {
			m := member(t, g, i)
			left, err := m.List(within(t), "", "", 1000)
			// a third of the TTL
			for end := time.Now().Add(20 * time.Second); err == nil && len(left) > 0 && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
				left, err = m.List(within(t), "", "", 1000)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(left) > 0 {
				t.Fatalf("round %d: %d names are left at server %d, such as %+v", round, len(left), i+1, left[0])
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCloseAfterCancel: a server was away when the session cancelled a request. Close cancels it
// there.
func TestCloseAfterCancel(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	s := open(t, g.backend(ways.addrs()), "s", time.Minute)
	r := try("x", "s-1")
	r.MinHold = time.Millisecond // it is asked for at all servers at once
	h := get(t, s, r)
	g.everywhere(t, "x", renewals(t, s, h))
	ways[2].Refuse()
	if err := s.Cancel(within(t), r.Name, r.ID); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	g.shows(t, 2, "x", "the grant", func(r driver.Record) bool { return len(r.Holders) == 1 }, func() {})
	ways[2].Heal()
	if err := s.Close(within(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	g.shows(t, 2, "x", "nothing", func(r driver.Record) bool { return len(r.Holders) == 0 }, func() {})
}

// TestTimedCloseBesideAFrozenServer: one server does not answer: to the first connection, or to a release. Close
// does not wait for its answer.
func TestTimedCloseBesideAFrozenServer(t *testing.T) {
	for _, connected := range []bool{false, true} {
		t.Run(fmt.Sprint("connected ", connected), func(t *testing.T) {
			g := start(t, 3, time.Minute)
			servers := at(g.addrs())
			for i, s := range g.servers {
				servers[i].Dial = func(ctx context.Context) (redislock.Conn, error) {
					return rueidisconn.DialContext(ctx, "redis://"+s.Addr+"?dial-timeout=1m&read-timeout=1m", nil)
				}
			}
			b := quorum.New(servers, &quorum.Config{Quarantine: g.quarantine})
			defer b.Close()
			r := try("x", "s-1")
			if !connected {
				g.servers[2].Pause()
			}
			s := open(t, b, "s", time.Minute)
			h := get(t, s, r)
			if connected {
				g.everywhere(t, "x", renewals(t, s, h))
				g.servers[2].Pause()
			}
			if err := s.Release(within(t), h, 0); err != nil {
				t.Errorf("Release: %v", err)
			}
			began := time.Now()
			if err := s.Close(within(t)); err != nil {
				t.Errorf("Close of the session: %v", err)
			}
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if d := time.Since(began); d > time.Second { // half a second, as docs/quorum.md says
				t.Errorf("Close took %v", d)
			}
		})
	}
}

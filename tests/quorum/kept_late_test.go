package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// TestKeptLate: a server that gets a grant later than the others does not keep the name for longer than
// they do. Otherwise it would refuse everybody when the minimum hold is over.
func TestKeptLate(t *testing.T) {
	t.Parallel()
	const minimum, late = 10 * time.Minute, 6 * time.Second
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	a := open(t, g.backend(ways.addrs()), "a", time.Minute)
	other := get(t, a, try("y", "a-1"))
	ways[2].Refuse()
	r := try("x", "a-2")
	r.MinHold = minimum
	h := get(t, a, r)
	time.Sleep(late)
	ways[2].Heal()
	g.everywhere(t, "x", renewals(t, a, other, h))
	if err := a.Release(within(t), h, 0); err != nil {
		t.Fatalf("Release: %v", err)
	}
	left := func(i int) (left time.Duration) {
		g.shows(t, i, "x", "the name kept", func(r driver.Record) bool {
			if len(r.Holders) == 1 {
				left = r.Holders[0].Left
			}
			return left > 0 && r.Holders[0].Kept
		}, func() {})
		return left
	}
	if first, last := left(0), left(2); last > first+late/2 {
		t.Errorf("one server keeps the name for %v, another one for %v", first, last)
	}
}

// failing is a Conn that counts the scripts that failed.
type failing struct {
	redislock.Conn
	failed *atomic.Int32
}

func (c failing) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	v, err := c.Conn.Run(ctx, s, keys, args)
	if err != nil {
		c.failed.Add(1)
	}
	return v, err
}

// TestKeptByServerThatWasAway: a server is away when a grant begins and ends. The name is kept there, too,
// when it is back. Otherwise the failure of another server would end the time for which it is kept.
func TestKeptByServerThatWasAway(t *testing.T) {
	t.Parallel()
	const kept = 10 * time.Minute
	for what, minimum := range map[string]time.Duration{"keep": 0, "minimum hold": kept} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, time.Minute)
			ways := g.proxies()
			servers := at(ways.addrs())
			var failed atomic.Int32
			servers[2].Dial = func(ctx context.Context) (redislock.Conn, error) {
				conn, err := at(ways.addrs())[2].Dial(ctx)
				return failing{conn, &failed}, err
			}
			b := quorum.New(servers, &quorum.Config{Quarantine: g.quarantine})
			t.Cleanup(func() { _ = b.Close() })
			a := open(t, b, "a", time.Minute)
			g.everywhere(t, "y", renewals(t, a, get(t, a, try("y", "a-y")))) // it is connected to all servers
			ways[2].Refuse()
			r := try("x", "a-1")
			r.MinHold = minimum
			h := get(t, a, r)
			before := failed.Load()
			if err := a.Release(within(t), h, kept-minimum); err != nil {
				t.Fatalf("Release: %v", err)
			}
			for end := time.Now().Add(20 * time.Second); failed.Load() < before+2; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the server was not asked again")
				}
			}
			ways[2].Heal()
			for i := range g.servers {
				g.shows(t, i, "x", "the name kept", func(r driver.Record) bool {
					return len(r.Holders) == 1 && r.Holders[0].Kept && r.Holders[0].Left <= kept
				}, func() {})
			}
		})
	}
}

// TestKeptAfterQuarantine: a server has restarted, and has no vote until its quarantine is over. The name of
// a lock that is released meanwhile is kept there after that.
func TestKeptAfterQuarantine(t *testing.T) {
	t.Parallel()
	const ttl, quarantine, kept = time.Second, 8 * time.Second, 10 * time.Minute
	g := start(t, 3, quarantine)
	a := open(t, g.backend(g.addrs()), "a", ttl)
	g.servers[2].Restart(false)
	err := driver.ErrGone
	for n := 0; driver.IsOver(err) && n < 10; n++ { // on a slow machine the lease may end before the release
		err = a.Release(within(t), get(t, a, try("x", fmt.Sprint("a-", n))), kept)
	}
	if err != nil {
		t.Fatalf("Release: %v", err)
	}
	g.shows(t, 2, "x", "the name kept", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].Kept && r.Holders[0].Left <= kept
	}, func() {})
}

// TestMinimumOfAnEarlierGrant: a message about the minimum hold of a grant comes after its cancellation. A late
// question has got another grant under the same ID, which does not keep the name.
func TestMinimumOfAnEarlierGrant(t *testing.T) {
	t.Parallel()
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		g := start(t, 3, time.Minute)
		s, err := member(t, g, 0).Join(within(t), driver.SessionConfig{ID: "a", TTL: time.Minute},
			redislock.Hooks{Pushed: func(string) {}, Claimed: func(string, int, string) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		req := try("x", "a-1")
		req.Mode = mode
		ask := func() uint64 {
			reply, _, err := s.Ask(within(t), req, 0)
			if err != nil || reply.Token == 0 {
				t.Fatalf("Ask: %+v, %v", reply, err)
			}
			return reply.Token
		}
		keep := func(token, upTo uint64) error {
			return s.Keep(within(t), driver.Hold{Name: "x", ID: "a-1", Token: token}, upTo, time.Hour)
		}
		first := ask()
		if err := s.Cancel(within(t), "x", "a-1"); err != nil {
			t.Fatal(err)
		}
		later := ask()
		if err := keep(first, first); !errors.Is(err, driver.ErrGone) {
			t.Errorf("%v: Keep of the first grant: %v; want ErrGone", mode, err)
		}
		if err := s.Pass(within(t), driver.Hold{Name: "x", ID: "a-1", Token: later}, 0, 0); err != nil {
			t.Fatal(err)
		}
		last := ask() // the name is free
		if err := keep(first, last); err != nil {
			t.Errorf("%v: Keep of a grant whose token was raised: %v", mode, err)
		}
	}
}

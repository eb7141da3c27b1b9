package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestEndedGrantKeepsNothing: a release that keeps the name comes after the lease has ended. It keeps the
// name at no server, also not at one that has never granted it. Otherwise that server would refuse
// everybody for as long as the name was to be kept.
func TestEndedGrantKeepsNothing(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	for what, minimum := range map[string]time.Duration{"kept": 0, "minimum hold": time.Hour} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, time.Minute)
			last := (g.firstOf("x") + 2) % 3
			free := g.asker(t, last, "x", "c")
			a := open(t, g.backend(g.addrs()), "a", ttl)
			r := try("x", "a-1")
			r.MinHold = minimum
			h := get(t, a, r)
			nobody := func(r driver.Record) bool { return len(r.Holders) == 0 }
			for i := range g.servers {
				if i == last {
					g.shows(t, i, "x", "no place", func(r driver.Record) bool { return r.Waiting == 0 }, func() {})
				} else if minimum == 0 {
					g.shows(t, i, "x", "no holder", nobody, func() {})
				} else {
					g.shows(t, i, "x", "the minimum hold", func(r driver.Record) bool { return r.Holders[0].Kept }, func() {})
				}
			}
			free()
			if err := a.Release(within(t), h, time.Hour-time.Duration(minimum)); !driver.IsOver(err) {
				t.Errorf("Release: %v; want ErrGone", err)
			}
			if err := a.Close(within(t)); err != nil { // it waits for what is under way
				t.Error(err)
			}
			rec, err := member(t, g, last).Inspect(within(t), "x")
			if err != nil || len(rec.Holders) > 0 {
				t.Errorf("server %d: %+v, %v; want no holder", last+1, rec, err)
			}
		})
	}
}

// TestMinimumOfADeadWaiter: a waiter that has server 2 dies. Its minimum hold goes on there, though it never had the
// lock. The holder gets the server when the waiter's lease is over: it has a majority.
func TestMinimumOfADeadWaiter(t *testing.T) {
	t.Parallel()
	for what, mode := range map[string]driver.Mode{"writer": driver.Exclusive, "reader": driver.Shared} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, time.Minute)
			dead := try("x", "c-1")
			dead.Mode, dead.MinHold, dead.Lease = mode, time.Hour, 2*time.Second
			g.asks(t, 2, "c", dead)
			a := open(t, g.backend(g.addrs()), "a", time.Minute)
			h := get(t, a, try("x", "a-x"))
			g.shows(t, 2, "x", "the holder", func(r driver.Record) bool {
				return len(r.Holders) == 1 && r.Holders[0].ID == h.ID && !r.Holders[0].Kept
			}, renewals(t, a, h))
		})
	}
}

// TestClaimOfAnOlderGrant: a server keeps a name for a grant that was released. A claim of a majority ends that
// only if its token is not smaller.
func TestClaimOfAnOlderGrant(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	m := member(t, g, 0)
	join := func(id string) *redislock.MemberSession {
		s, err := m.Join(within(t), driver.SessionConfig{ID: id, TTL: g.quarantine},
			redislock.Hooks{Pushed: func(string) {}, Claimed: func(string, int, string) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return s
	}
	c, a := join("c"), join("a")
	reply, _, err := c.Ask(within(t), try("x", "c-x"), 0)
	if err != nil || reply.Token == 0 {
		t.Fatal(reply, err)
	}
	if err := c.Pass(within(t), driver.Hold{Name: "x", ID: "c-x", Token: reply.Token}, time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	waits := try("x", "a-x")
	waits.Wait = true
	if reply, _, err := a.Ask(within(t), waits, 0); err != nil || reply.Token != 0 {
		t.Fatal(reply, err)
	}
	for _, claim := range []struct {
		token  uint64
		holder string
	}{{reply.Token - 1, "c-x"}, {reply.Token, "a-x"}} {
		if err := a.Claim(within(t), "x", "a-x", 0, claim.token); err != nil {
			t.Fatal(err)
		}
		r, err := m.Inspect(within(t), "x")
		if err != nil || len(r.Holders) != 1 || r.Holders[0].ID != claim.holder {
			t.Errorf("after a claim under %d: %+v, %v; want the holder %s", claim.token, r, err, claim.holder)
		}
	}
}

package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestKeptMissedByOne: one server did not receive the release that keeps a name, or refused it for
// a moment, and later another loses its data. The name stays kept. The lease expires in the test,
// the minimum does not.
func TestKeptMissedByOne(t *testing.T) {
	t.Parallel()
	const ttl, minimum = 5 * time.Second, 10 * time.Minute
	for _, how := range []string{"unreachable", "NOREPLICAS"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, ttl+time.Second)
			ways := g.proxies()
			a, b := open(t, g.backend(ways.addrs()), "a", ttl), open(t, g.backend(g.addrs()), "b", ttl)
			r := try("x", "a-x")
			r.MinHold = minimum
			h := get(t, a, r)
			g.everywhere(t, "x", renewals(t, a, h))
			heal := misses[how](g, ways)
			if err := a.Release(within(t), h, 0); err != nil {
				t.Fatalf("Release: %v", err)
			}
			heal()
			for over := time.Now().Add(ttl + ttl/2); time.Now().Before(over); time.Sleep(50 * time.Millisecond) {
				_, _ = a.Renew(within(t), nil) // sends the third server what it has missed
			}
			for i := range g.servers {
				g.shows(t, i, "x", "the name kept", func(r driver.Record) bool { return len(r.Holders) == 1 && r.Holders[0].Kept },
					func() {})
			}
			g.servers[0].Restart(false)
			for n := range 20 { // while it is in quarantine, and after that
				reply, err := b.Acquire(within(t), try("x", fmt.Sprintf("b-%d", n)))
				if reply.Token != 0 {
					t.Fatalf("granted after a release that keeps the name for %v (%v)", minimum, err)
				}
				time.Sleep(ttl / 10)
			}
		})
	}
}

// TestKeepMissedByOne: one server has granted a lock, but did not receive the release that keeps the name,
// or refused it for a moment. The name is kept there, too, and not only until the lease ends.
func TestKeepMissedByOne(t *testing.T) {
	t.Parallel()
	const ttl, kept = 5 * time.Second, 10 * time.Minute
	for _, how := range []string{"unreachable", "NOREPLICAS"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, time.Minute)
			ways := g.proxies()
			a := open(t, g.backend(ways.addrs()), "a", ttl)
			h := get(t, a, try("x", "a-x"))
			g.everywhere(t, "x", renewals(t, a, h))
			heal := misses[how](g, ways)
			if err := a.Release(within(t), h, kept); err != nil {
				t.Fatalf("Release: %v", err)
			}
			heal()
			for i := range g.servers {
				g.shows(t, i, "x", "the name kept", func(r driver.Record) bool {
					return len(r.Holders) == 1 && r.Holders[0].Kept && r.Holders[0].Left > kept/2
				}, func() {})
			}
		})
	}
}

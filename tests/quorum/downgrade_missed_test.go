package quorum_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestDowngradeMissedByOne: a server that did not receive a downgrade, or refused it for a moment,
// gets it with a renewal. Otherwise, if another server fails, no reader enters while the former
// writer reads.
func TestDowngradeMissedByOne(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"unreachable", "NOREPLICAS"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, time.Minute+time.Second)
			ways := g.proxies()
			a, b := open(t, g.backend(ways.addrs()), "a", time.Minute), open(t, g.backend(g.addrs()), "b", time.Minute)
			h := get(t, a, try("x", "a-x"))
			g.everywhere(t, "x", renewals(t, a, h))
			heal := misses[how](g, ways)
			if err := a.Downgrade(within(t), h); err != nil {
				t.Fatalf("Downgrade: %v", err)
			}
			heal()
			reads := func(r driver.Record) bool { return len(r.Holders) == 1 && r.Holders[0].Mode == driver.Shared }
			for i := range g.servers {
				g.shows(t, i, "x", "a reader", reads, renewals(t, a, h))
			}
			g.servers[0].Kill()
			r := try("x", "b")
			r.Mode = driver.Shared
			granted(t, b, r, renewals(t, a, h))
		})
	}
}

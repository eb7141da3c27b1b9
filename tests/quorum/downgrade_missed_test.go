package quorum_test

import (
	"slices"
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

// TestReaderBesideAMissedDowngrade: server 2 has missed a downgrade, and so keeps the name for a writer after its
// release. A reader with a majority enters there. The minimum hold goes on, against writers.
func TestReaderBesideAMissedDowngrade(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute+time.Second)
	ways := g.proxies()
	a, b := open(t, g.backend(ways.addrs()), "a", time.Minute), open(t, g.backend(g.addrs()), "b", time.Minute)
	first := try("x", "a-x")
	first.MinHold = 10 * time.Minute
	h := get(t, a, first)
	g.everywhere(t, "x", renewals(t, a, h))
	ways[2].Refuse()
	if err := a.Downgrade(within(t), h); err != nil {
		t.Fatalf("Downgrade: %v", err)
	}
	if err := a.Release(within(t), h, 0); err != nil {
		t.Fatalf("Release: %v", err)
	}
	ways[2].Heal()
	g.shows(t, 2, "x", "a writer's name kept", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].Kept && r.Holders[0].Mode == driver.Exclusive
	}, func() {})
	reader := try("x", "b-x")
	reader.Mode = driver.Shared
	g.shows(t, 2, "x", "both readers", func(r driver.Record) bool {
		kept := slices.ContainsFunc(r.Holders, func(h driver.Holder) bool { return h.ID == "a-x" && h.Kept })
		return len(r.Holders) == 2 && kept
	}, renewals(t, b, get(t, b, reader)))
}

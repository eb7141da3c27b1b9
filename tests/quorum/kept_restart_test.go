package quorum_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestKeptOverRestarts: all servers restart one after the other, each when the one before votes again. The
// servers write to their disks, so the name stays kept although its minimum hold is longer than the
// quarantine.
func TestKeptOverRestarts(t *testing.T) {
	t.Parallel()
	const ttl, quarantine, kept = time.Second, 2 * time.Second, 10 * time.Minute
	g := start(t, 3, quarantine, "--appendonly", "yes", "--appendfsync", "always")
	b := g.backend(g.addrs())
	a := open(t, b, "a", ttl)
	h := get(t, a, try("x", "a-1"))
	if err := a.Release(within(t), h, kept); err != nil {
		t.Fatalf("Release: %v", err)
	}
	for i, s := range g.servers {
		g.shows(t, i, "x", "the name kept", isKept, func() {})
		s.Restart(false)
		m := member(t, g, i)
		for left := quarantine; left > 0; time.Sleep(20 * time.Millisecond) {
			birth, err := m.Birth(within(t), false)
			if err != nil {
				t.Fatal(err)
			}
			left = birth.Left
		}
	}
	other := open(t, g.backend(g.addrs()), "b", ttl)
	reply, err := other.Acquire(within(t), try("x", "b-1"))
	for passing(err) {
		reply, err = other.Acquire(within(t), try("x", "b-1"))
	}
	if err != nil || reply.Token != 0 || reply.Holder == nil || !reply.Holder.Kept || reply.Holder.Partial {
		t.Errorf("after three restarts: %+v, %v; want it kept", reply, err)
	}
}

func isKept(r driver.Record) bool { return len(r.Holders) == 1 && r.Holders[0].Kept }

package quorum_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
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

package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestTimedKeptMissedByOne: a name that is kept for a minimum stays so when one server did not hear of the release, or refused it
// for a moment, and later another loses its data.
func TestTimedKeptMissedByOne(t *testing.T) {
	t.Parallel()
	const ttl, minimum = 5 * time.Second, 10 * time.Minute
	for _, how := range []string{"refused", "unreachable"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, ttl+time.Second)
			ways := g.proxies()
			a, b := open(t, g.backend(ways.addrs()), "a", ttl), open(t, g.backend(g.addrs()), "b", ttl)
			r := try("x", "a-x")
			r.MinHold = minimum
			h, other := get(t, a, r), get(t, a, try("y", "a-y"))
			for range 4 { // so that all have it
				time.Sleep(200 * time.Millisecond)
				if changes, err := a.Renew(within(t), []driver.Hold{h, other}); err != nil || len(changes) != 0 {
					t.Logf("Renew: %+v, %v", changes, err)
				}
			}
			g.everywhere(t, "x", 1)
			heal := func() { ways[2].Heal() }
			if how == "refused" {
				g.servers[2].Do("CONFIG SET min-replicas-to-write 1")
				heal = func() { g.servers[2].Do("CONFIG SET min-replicas-to-write 0") }
			} else {
				ways[2].Refuse()
			}
			if err := a.Release(within(t), h, 0); err != nil {
				t.Fatalf("Release: %v", err)
			}
			time.Sleep(300 * time.Millisecond)
			heal()
			for range 8 {
				time.Sleep(300 * time.Millisecond)
				if changes, err := a.Renew(within(t), []driver.Hold{other}); err != nil || len(changes) != 0 {
					t.Logf("Renew: %+v, %v", changes, err)
				}
			}
			for i := range g.servers {
				rec, err := member(t, g, i).Inspect(within(t), "x")
				if err != nil || len(rec.Holders) != 1 {
					t.Errorf("server %d does not keep the name: %+v, %v", i+1, rec.Holders, err)
				}
			}
			g.servers[0].Restart(false)
			start := time.Now()
			for n := 0; time.Since(start) < 3*ttl; n++ {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				reply, err := b.Acquire(ctx, try("x", fmt.Sprintf("b-%d", n)))
				cancel()
				if reply.Token != 0 {
					t.Fatalf("granted %v after a release that keeps the name for %v (%v)", time.Since(start), minimum, err)
				}
				time.Sleep(300 * time.Millisecond)
			}
		})
	}
}

package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestTimedDowngradeMissedByOne: a server that did not hear of a downgrade, or refused it for a moment, learns of it with a renewal.
// Else, when another server fails, no reader comes in for as long as the one that was a writer reads.
func TestTimedDowngradeMissedByOne(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	for _, how := range []string{"refused", "unreachable"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, ttl+time.Second)
			ways := g.proxies()
			a, b := open(t, g.backend(ways.addrs()), "a", ttl), open(t, g.backend(g.addrs()), "b", ttl)
			h := get(t, a, try("x", "a-x"))
			g.everywhere(t, "x", 1)
			heal := func() { ways[2].Heal() }
			if how == "refused" {
				g.servers[2].Do("CONFIG SET min-replicas-to-write 1")
				heal = func() { g.servers[2].Do("CONFIG SET min-replicas-to-write 0") }
			} else {
				ways[2].Refuse()
			}
			if err := a.Downgrade(within(t), h); err != nil {
				t.Fatalf("Downgrade: %v", err)
			}
			time.Sleep(300 * time.Millisecond)
			heal()
			renew := func() {
				t.Helper()
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				if changes, err := a.Renew(ctx, []driver.Hold{h}); err != nil || len(changes) != 0 {
					t.Logf("Renew: %+v, %v", changes, err)
				}
			}
			for range 8 {
				time.Sleep(300 * time.Millisecond)
				renew()
			}
			for i := range g.servers {
				r, err := member(t, g, i).Inspect(within(t), "x")
				if err != nil || len(r.Holders) != 1 {
					t.Logf("server %d: %+v, %v", i+1, r, err)
					continue
				}
				t.Logf("server %d: mode %v", i+1, r.Holders[0].Mode)
			}
			g.servers[0].Kill()
			start := time.Now()
			for n := 0; ; n++ {
				r := try("x", fmt.Sprintf("b-%d", n))
				r.Mode = driver.Shared
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				reply, err := b.Acquire(ctx, r)
				cancel()
				if reply.Token != 0 {
					break
				}
				if time.Since(start) > 3*ttl {
					t.Fatalf("no reader came in for %v, three TTLs, beside one that has been downgraded: %+v, %v", time.Since(start), reply, err)
				}
				renew()
				time.Sleep(300 * time.Millisecond)
			}
			t.Logf("a reader came in after %v", time.Since(start))
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("a reader came in after %v", d)
			}
		})
	}
}

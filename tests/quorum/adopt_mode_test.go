package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// TestAdoptedReader: a lock was downgraded, but one server does not know. A session that adopts the
// lock gets it as a reader's. As a writer's it would stand next to the readers that have entered.
func TestAdoptedReader(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	g := start(t, 3, ttl+time.Second)
	client := func(addrs []string) *holdfast.Client {
		c := connect(t, g.backend(addrs), &holdfast.Config{TTL: ttl})
		return c
	}
	ways := g.proxies()
	giver, reader, taker := client(ways.addrs()), client(g.addrs()), client(g.addrs())
	wrong := 0
	const rounds = 6 // a third of them failed before the fix
	for i := range rounds {
		name := fmt.Sprint("x", i)
		l, err := giver.RWMutex(name).Lock(within(t))
		if err != nil {
			t.Fatal(err)
		}
		g.everywhere(t, name, func() {}) // the client renews
		ways[2].Refuse()
		if err := l.Downgrade(); err != nil {
			t.Fatalf("Downgrade: %v", err)
		}
		ways[2].Heal()
		r, err := reader.RWMutex(name).RLock(within(t))
		if err != nil {
			t.Fatalf("RLock: %v", err)
		}
		ticket, _, err := l.HandOff()
		if err != nil {
			t.Fatal(err)
		}
		taken, err := taker.Adopt(within(t), ticket)
		if err != nil {
			t.Fatalf("Adopt: %v", err)
		}
		w, err := taker.RWMutex(name, holdfast.Reentrant()).TryLock(taken.Context(t.Context()))
		if err == nil {
			wrong++
			if r.Err() != nil || taken.Err() != nil {
				t.Logf("%v, %v", r.Err(), taken.Err())
			}
			_ = w.Release()
		} else {
			t.Logf("round %d: %v", i, err)
		}
		_ = taken.Release()
		_ = r.Release()
	}
	if wrong > 0 {
		t.Errorf("in %d of %d rounds the adopter had a write lease next to a reader", wrong, rounds)
	}
}

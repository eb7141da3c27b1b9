package quorum_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(start(t, testenv.Rounds(3, 5), 3*time.Minute, "--appendonly", "yes")))
}

func TestTimedConformance(t *testing.T) { drivertest.RunTimed(t, harness(start(t, 5, 3*time.Minute))) }

func harness(g *group) drivertest.Harness {
	refuse := func(setting string) func(testing.TB) func() {
		return func(t testing.TB) func() {
			t.Helper()
			g.each("CONFIG SET " + setting + " 1")
			return func() { g.each("CONFIG SET " + setting + " 0") }
		}
	}
	return drivertest.Harness{
		Polled:  "its servers would each report changes of their own",
		TTL:     2 * time.Second,
		Names:   testenv.Rounds(300, 2000), // each at every server
		Insists: true,
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			ways := g.proxies()
			b := g.backend(ways.addrs())
			t.Cleanup(func() { _ = b.Close() })
			spoil := func(f func(*testenv.TCPProxy)) func() func() {
				return func() func() {
					ways.each(f)
					return func() { ways.each((*testenv.TCPProxy).Heal) }
				}
			}
			return drivertest.Conn{
				Backend:     b,
				Kill:        func() { ways.each((*testenv.TCPProxy).Refuse) },
				Cut:         spoil((*testenv.TCPProxy).Hole),
				DropReplies: spoil((*testenv.TCPProxy).DropReplies),
				Hold:        func() func() { return testenv.HoldAll(ways...) },
				Forget:      func() { ways.each((*testenv.TCPProxy).Forget) },
			}
		},
		Refuse: map[string]func(testing.TB) func(){
			"NOREPLICAS": refuse("min-replicas-to-write"),
			"OOM":        refuse("maxmemory"),
		},
		Forger: g.forger(),
		Placed: g.placed(),
		// At all servers: a minority of them blocks no lock, see TestOneDamaged.
		Damage: map[string]func(testing.TB, string){
			"type": func(t testing.TB, name string) {
				t.Helper()
				key := g.record(name)
				for _, s := range g.servers {
					retype(t, s, key)
				}
			},
			"value": func(t testing.TB, name string) { t.Helper(); g.each("SET " + g.record(name) + " nonsense") },
		},
		// A quorum keeps its data as long as only a minority restarts. After that the others are
		// alone: the quarantine is long here, because the longest TTL is.
		Restart: func(t testing.TB) {
			t.Helper()
			g.servers[1].Restart(true)
			if len(g.servers) == 5 {
				g.servers[3].Restart(false)
			}
		},
	}
}

// placed returns drivertest.Harness.Placed. A server in quarantine gives no places.
func (g *group) placed() func(t testing.TB, name, id string, renew func()) {
	members := make([]*redislock.Member, len(g.servers))
	for i := range members {
		members[i] = member(g.t, g, i)
	}
	var places, helped atomic.Int64
	g.t.Cleanup(func() {
		// An Acquire asks all servers. Few of them are connected too late for it.
		if n := helped.Load(); n > 10 && n*10 > places.Load() {
			g.t.Errorf("%d of %d requests got a place at each server by a renewal only", n, places.Load())
		}
	})
	return func(t testing.TB, name, id string, renew func()) {
		t.Helper()
		is := func(h driver.Holder) bool { return h.ID == id }
		places.Add(1)
		began := time.Now()
		asked := sync.OnceFunc(func() { helped.Add(1) })
		for i, m := range members {
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				r, err := m.Inspect(within(t), name)
				var newborn *redislock.Newborn
				if errors.As(err, &newborn) || slices.ContainsFunc(r.Waiters, is) || slices.ContainsFunc(r.Holders, is) ||
					len(r.Waiters) == driver.MaxWaiters { // the list ends there
					break
				}
				if time.Now().After(end) {
					t.Fatalf("server %d has no place of %s: %+v, %v", i+1, id, r, err)
				}
				if time.Since(began) > time.Second {
					asked()
					renew()
				}
			}
		}
	}
}

package zklock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Locks of all kinds are cancelled at random moments, on a network that cuts and resets connections
// and swallows answers. No node of them is left, and the names can be locked.
func TestCancelsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions)
	z := newTree(t, server.Addr)
	before := watches(t, server)
	for _, c := range []struct {
		name    string
		trouble bool
	}{{"good network", false}, {"bad network", true}} {
		t.Run(c.name, func(t *testing.T) {
			var calls, got atomic.Int64
			stop := make(chan struct{})
			var workers, chaos sync.WaitGroup
			for i := range 3 {
				proxy := testenv.Proxy(t, server.Addr)
				c1 := client(t, on(proxy.Addr), 100*time.Second) // nothing expires during the test
				if c.trouble {
					chaos.Go(func() { disturb(proxy, stop, uint64(i)) })
				}
				for j := range 4 {
					rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
					workers.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
							}
							slow := int64(1)
							if got.Load() == 0 { // some locks must be granted, however slow the machine is
								slow += calls.Load() / 20
							}
							patience := time.Duration(rng.Int64N(12000*slow)) * time.Microsecond
							if rng.IntN(10) == 0 {
								patience *= 50
							}
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							l, err := anyLock(ctx, c1, rng)
							cancel()
							calls.Add(1)
							if err == nil {
								got.Add(1)
								_ = l.Release() // lost, if the network was bad for long
							}
						}
					})
				}
			}
			enough := int64(testenv.Rounds(300, 3000))
			until(t, "something was tried", func() bool { return calls.Load() >= enough && got.Load() > 0 })
			close(stop)
			chaos.Wait()
			workers.Wait()
			t.Logf("%d calls, %d locks", calls.Load(), got.Load())
			z.empty("/holdfast/g")
			p := newPeer(t, on(server.Addr))
			for _, r := range []string{"g/mutex", "g/rw"} {
				p.release(p.get(once(p.req(r))))
			}
			p.release(p.get(once(p.permits("g/sem", 3, 3))))
		})
	}
	until(t, "the server keeps no watches of ended requests", func() bool { return watches(t, server) <= before })
}

// anyLock takes one of several contended locks.
func anyLock(ctx context.Context, c *holdfast.Client, rng *rand.Rand) (*holdfast.Lease, error) {
	switch rng.IntN(6) {
	case 0, 1:
		return c.Mutex("g/mutex").Lock(ctx)
	case 2:
		return c.Mutex("g/mutex").TryLock(ctx)
	case 3:
		return c.RWMutex("g/rw").Lock(ctx)
	case 4:
		return c.RWMutex("g/rw").RLock(ctx)
	default:
		return c.Semaphore("g/sem", 3).Acquire(ctx, 1+rng.IntN(3))
	}
}

// disturb breaks connections in all ways that a bad network does, and repairs the network at the
// end.
func disturb(p *testenv.TCPProxy, stop chan struct{}, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	pause := func(most int) { time.Sleep(time.Duration(1+rng.IntN(most)) * time.Millisecond) }
	for {
		select {
		case <-stop:
			p.Heal()
			return
		default:
		}
		switch rng.IntN(4) {
		case 0:
			p.Reset()
		case 1:
			p.DropReplies()
			pause(30)
		case 2:
			p.Hole()
			pause(60)
		case 3:
			p.Refuse()
			pause(20)
		}
		p.Heal()
		pause(400) // long enough to connect and get a lock, on a busy machine, too
	}
}

package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Readers that share grants do at random what callers can do, while an operator breaks grants, the network
// fails and the Observer panics. In the end each lease that was granted has ended once, and the store has
// no grant that nobody would release.
func TestSharedGrantsAddUp(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 1))
			chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) == 0 }
			var e ends
			o := e.observer()
			o.Acquired = func(string, uint64, time.Duration) {
				if chance(40) {
					panic("the Observer fails")
				}
			}
			o.Waiting = func(holdfast.Waiting) {
				if chance(40) {
					panic("the Observer fails")
				}
			}
			store := memlock.New()
			conn := drivertest.Faulty(store)
			profiles := newProfiles()
			c := client(t, conn, &holdfast.Config{Observer: o, Profiles: profiles})
			other := client(t, store, nil)
			stop := make(chan struct{})
			var wg, operators sync.WaitGroup
			for i := range uint64(24) {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 2+i))
					for range 40 {
						readAtRandom(t.Context(), c, r)
					}
				})
			}
			for i := range uint64(2) {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, 200+i))
					for range 60 {
						if l, err := other.RWMutex(fmt.Sprint("m", r.IntN(2))).Lock(t.Context()); err == nil {
							time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
							_ = l.Release()
						}
					}
				})
			}
			operators.Go(func() { disturb(t.Context(), seed, conn.Cut, other, stop) })
			wg.Wait()
			close(stop)
			operators.Wait()
			time.Sleep(3 * ttl)
			for r := range other.Locks(t.Context(), "") {
				if len(r.Holders) > 0 || r.Waiting > 0 {
					t.Errorf("seed %d: the store has %+v", seed, r)
				}
			}
			if h := c.Health(); h.Held+h.Waiting+h.Offered > 0 {
				t.Errorf("seed %d: left: %+v", seed, h)
			}
			_ = c.Close(t.Context())
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			ids, granted := map[string]int{}, 0
			for _, w := range e.waits {
				if w.Outcome == holdfast.OutcomeGranted {
					ids[w.ID]++
					granted++
				}
			}
			shared := granted - len(ids)
			for _, l := range e.leases {
				ids[l.ID]--
			}
			for id, n := range ids {
				if n != 0 {
					t.Errorf("seed %d: leases of the grant %s were granted %+d times more often than they ended", seed, id, n)
				}
			}
			if shared < 100 {
				t.Errorf("seed %d: only %d leases of %d share a grant", seed, shared, granted)
			}
			nothingLeft(t, c, profiles)
		})
	}
}

// readAtRandom makes one call, mostly to read, and ends the lease.
func readAtRandom(ctx context.Context, c *holdfast.Client, r *rand.Rand) {
	defer func() { _ = recover() }() // the Observer's
	var opts []holdfast.Option
	if r.IntN(6) == 0 {
		opts = append(opts, holdfast.WaitAtMost(time.Duration(1+r.Int64N(int64(time.Second)))))
	}
	waiting := ctx
	if r.IntN(4) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(time.Second))))
		defer cancel()
		waiting = limited
	}
	rw := c.RWMutex(fmt.Sprint("m", r.IntN(2)), opts...)
	switch r.IntN(12) {
	case 0:
		if l, err := rw.Lock(waiting); err == nil {
			endAtRandom(ctx, c, l, r)
		}
	case 1:
		m, err := holdfast.LockAll(waiting, c.RWMutex("m0", opts...).Reader(), c.RWMutex("m1", opts...).Reader())
		if err == nil {
			time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			_ = m.Release()
		}
	case 2:
		_ = rw.RDo(waiting, func(ctx context.Context) error {
			if l, err := c.RWMutex(fmt.Sprint("m", r.IntN(2)), holdfast.Reentrant()).RLock(ctx); err == nil {
				return l.Release()
			}
			return ctx.Err()
		})
	case 3:
		if l, err := rw.TryRLock(waiting); err == nil {
			endAtRandom(ctx, c, l, r)
		}
	case 4:
		if l, err := rw.RLock(waiting); err == nil {
			_, _ = l.Ticket()
			_ = l.Extend(time.Duration(1 + r.Int64N(int64(time.Second))))
			endAtRandom(ctx, c, l, r)
		}
	default:
		if l, err := rw.RLock(waiting); err == nil {
			endAtRandom(ctx, c, l, r)
		}
	}
}

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
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// When a part has been held for long, the calls that waited for it give back the others, and are out of
// order. They and the calls that follow soon are as fast as before.
func TestLockAllAfterALongHold(t *testing.T) {
	for _, clients := range []int{1, 8} {
		for _, calls := range []int{3, 8, 40} {
			synctest.Test(t, func(t *testing.T) {
				h := &hooks{Backend: memlock.New()}
				h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
					time.Sleep(time.Millisecond)
					return next()
				}
				var all []*holdfast.Client
				for range clients {
					all = append(all, client(t, h, nil))
				}
				held := lock(t, client(t, h, nil), "c")
				const rounds, work = 10, 10 * time.Millisecond
				var wg sync.WaitGroup
				for i := range calls {
					c := all[i%clients]
					wg.Go(func() {
						for range rounds {
							m, err := holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("b"), c.Mutex("c"))
							if err != nil {
								t.Error(err)
								return
							}
							time.Sleep(work)
							if err := m.Release(); err != nil {
								t.Error(err)
							}
						}
					})
				}
				time.Sleep(3 * time.Second)
				release(t, held)
				start, alone := time.Now(), time.Duration(calls*rounds)*(work+3*time.Millisecond)
				wg.Wait()
				if d := time.Since(start); d > alone+5*time.Second {
					t.Errorf("%d clients, %d calls: %v; alone, one after the other, they need %v", clients, calls, d, alone)
				}
			})
		}
	}
}

// Calls for some of five names, at random, are not slower than one after the other.
func TestLockAllOfSomeNames(t *testing.T) {
	const seeds, callers, rounds, most = 8, 8, 20, 1000 // milliseconds
	took := time.Duration(0)
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			var all sync.WaitGroup
			start := time.Now()
			for i := range uint64(callers) {
				c := client(t, store, nil)
				r := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					for range rounds {
						var parts []holdfast.Part
						for range 1 + r.IntN(4) {
							parts = append(parts, c.Mutex(fmt.Sprint(r.IntN(5))))
						}
						m, err := holdfast.LockAll(t.Context(), parts...)
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Duration(r.IntN(most)) * time.Millisecond)
						_ = m.Release()
					}
				})
			}
			all.Wait()
			took += time.Since(start)
		})
	}
	if alone := seeds * callers * rounds * most / 2 * time.Millisecond; took > alone {
		t.Errorf("%v; one after the other, they need %v", took, alone)
	}
}

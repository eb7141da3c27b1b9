package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// However busy a sticky client is, and whenever a newcomer comes, that waits for the passes which any
// client may make. If all call-backs are lost, it waits until the grant is old.
func TestNewcomerBesideABusyClient(t *testing.T) {
	const hold = time.Millisecond
	for name, lost := range map[string]bool{"called back": false, "call-backs are lost": true} {
		for _, calls := range []int{1, 2, 128} {
			t.Run(fmt.Sprint(name, ", ", calls), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &recalls{Backend: memlock.New()}
					c, other := client(t, store, nil), client(t, store, nil)
					most := 10*time.Millisecond + 2*hold
					d := time.Hour
					if lost {
						store.lose()
						d = 15 * time.Second // more than a TTL
						most = d + 2*hold
					}
					var over atomic.Bool
					var all sync.WaitGroup
					for range calls {
						all.Go(func() {
							for !over.Load() {
								l := lock(t, c, "x", holdfast.Sticky(d))
								time.Sleep(1 + rand.N(hold))
								release(t, l)
								if rand.IntN(8) == 0 {
									time.Sleep(1 + rand.N(hold))
								}
							}
						})
					}
					worst := time.Duration(0)
					times := 200
					if lost {
						times = 4
					}
					for range times {
						time.Sleep(rand.N(50 * time.Millisecond))
						began := time.Now()
						l := lock(t, other, "x")
						worst = max(worst, time.Since(began))
						release(t, l)
					}
					over.Store(true)
					all.Wait()
					if worst > most {
						t.Errorf("a newcomer has waited for %v; want at most %v", worst, most)
					}
				})
			})
		}
	}
}

// A call that waits for the release of its client's own grant does not know whether somebody holds the
// lock. So it reports that the store is silent, and not that the lock is held.
func TestWaitAtMostBesideASilentRelease(t *testing.T) {
	const d = time.Second
	for name, begin := range map[string]func(t *testing.T, c *holdfast.Client, r *recalls){
		"called back": func(t *testing.T, c *holdfast.Client, r *recalls) {
			(*r.wanted.Load())("x", must(c.Inspect(t.Context(), "x"))(t).Holders[0].ID)
		},
		"idle for d": func(*testing.T, *holdfast.Client, *recalls) { time.Sleep(d) },
		"used up": func(t *testing.T, c *holdfast.Client, _ *recalls) {
			l := lock(t, c, "x", holdfast.Sticky(d))
			for l.Token() != l.GrantToken() {
				release(t, l)
				l = lock(t, c, "x", holdfast.Sticky(d))
			}
			go func() { _ = l.Release() }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, do := answering(memlock.New())
				h.release = func(ctx context.Context, _ driver.Hold, next func() error) error {
					if f := do.Load(); f != nil {
						return (*f)(ctx)
					}
					return next()
				}
				r := &recalls{Backend: h}
				c := client(t, r, nil)
				takeX(t, c, holdfast.Sticky(d))
				silent := hangs
				do.Store(&silent)
				begin(t, c, r)
				synctest.Wait()
				for range 5 {
					within(t, "WaitAtMost", d, d, func() {
						_, err := c.Mutex("x", holdfast.Sticky(d), holdfast.WaitAtMost(d)).Lock(t.Context())
						if !errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) {
							t.Errorf("WaitAtMost: %v", err)
						}
					})
				}
			})
		})
	}
}

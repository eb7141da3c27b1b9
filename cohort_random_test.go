package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Two clients with many calls exclude each other, whatever the calls do, and tokens grow.
func TestPassesExclude(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := &hooks{Backend: store}
			rng := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) == 0 }
			pause := func(most time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(rng.Int64N(int64(most)))
			}
			h.acquire = func(ctx context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
				time.Sleep(pause(time.Millisecond))
				r, err := next()
				if chance(30) {
					return driver.Reply{}, driver.ErrUncertain
				}
				time.Sleep(pause(time.Millisecond))
				return r, err
			}
			h.release = func(_ context.Context, _ driver.Hold, next func() error) error {
				time.Sleep(pause(time.Millisecond))
				err := next()
				if chance(30) {
					return driver.ErrUncertain
				}
				return err
			}
			clients := []*holdfast.Client{
				client(t, h, &holdfast.Config{Passes: 5}), client(t, h, nil), client(t, h, &holdfast.Config{Passes: -1}),
			}
			inside, last, n := 0, uint64(0), 0
			var all sync.WaitGroup
			for i := range 24 {
				c := clients[i%len(clients)]
				all.Go(func() {
					for range 20 {
						ctx, cancel := t.Context(), func() {}
						if chance(4) {
							ctx, cancel = context.WithTimeout(ctx, pause(20*time.Millisecond))
						}
						l, err := c.Mutex("x").Lock(ctx)
						cancel()
						if err != nil {
							if !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							continue
						}
						mu.Lock()
						if inside++; inside != 1 || l.Token() <= last {
							t.Errorf("seed %d: %d inside, token %d after %d", seed, inside, l.Token(), last)
						}
						last = max(last, l.Token())
						n++
						mu.Unlock()
						if chance(3) {
							time.Sleep(pause(3 * time.Millisecond))
						}
						if chance(20) { // silent for longer than its lease would last without renewals
							time.Sleep(2 * ttl)
						}
						mu.Lock()
						inside--
						mu.Unlock()
						if chance(20) {
							err = l.ReleaseNow()
						} else {
							err = l.Release()
						}
						if err != nil && !errors.Is(err, holdfast.ErrUncertain) {
							t.Errorf("seed %d: Release = %v", seed, err)
						}
					}
				})
			}
			all.Wait()
			if n < 200 {
				t.Errorf("seed %d: only %d grants", seed, n)
			}
			for _, c := range clients {
				if h, w := c.Held(), c.Wanted(); len(h) > 0 || len(w) > 0 {
					t.Errorf("left: %v, %v", h, w)
				}
			}
		})
	}
}

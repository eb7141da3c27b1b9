//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// cancels cancels locks calls of Lock, at all moments before the answer and during the wait. None
// leaves a grant or a place in the queue. Leases last an hour, so anything left would be found.
func cancels(t *testing.T, b driver.Backend, locks int) {
	const workers, names, part = 8, 6, 2000
	var clients [2]*holdfast.Client
	for i := range clients {
		c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: longest})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		clients[i] = c
	}
	pair := typicalTime(t, clients[0])
	var granted atomic.Int64
	for done := 0; done < locks; done += part {
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range min(locks-done, part) / workers {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*pair))
					l, err := clients[w%2].Mutex(fmt.Sprintf("cancelled/%d", (w+i)%names)).Lock(ctx)
					cancel()
					if err == nil {
						granted.Add(1)
						_ = l.Release() // in the background, if it fails
					}
				}
			})
		}
		all.Wait()
		// A cancel in the background must reach the store, however slow the store is.
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			list, err := b.List(t.Context(), "cancelled/", "", names)
			if err == nil && len(list) == 0 {
				break
			}
			if time.Now().After(end) {
				for _, r := range list {
					t.Errorf("left of %q: holders %+v and %d waiters", r.Name, r.Holders, r.Waiting)
				}
				t.Fatalf("after %d locks; %v", done+part, err)
			}
		}
	}
	t.Logf("%d of %d locks were granted before the cancel; none left anything", granted.Load(), locks)
}

// typicalTime returns how long a Lock and Release take here, at least a quarter of a millisecond.
func typicalTime(t *testing.T, c *holdfast.Client) time.Duration {
	const tries = 20
	begun := time.Now()
	for range tries {
		if err := c.Mutex("usual").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return max(time.Since(begun)/tries, time.Millisecond/4)
}

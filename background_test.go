package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A store does not answer requests about a few names, each of which many callers have given up. A
// cancel for another name still reaches the store at once.
func TestCancelsOfOneNameDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var mu sync.Mutex
		running, most := 0, 0
		answer := make(chan struct{})
		h := &hooks{Backend: store, cancel: func(name string, next func() error) error {
			if name == "free" {
				return next()
			}
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				running--
			}()
			select {
			case <-answer:
				return next()
			case <-time.After(time.Second):
				return driver.ErrUnavailable
			}
		}}
		c, other := client(t, h, nil), client(t, store, nil)
		const lockedNames = 5
		waiting := func(name string) int {
			r, err := other.Inspect(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return r.Waiting
		}
		var all sync.WaitGroup
		waiters := func(name string, n int) (giveUp func()) {
			if _, err := other.Mutex(name).Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			for range n {
				all.Go(func() { _, _ = c.Mutex(name, holdfast.Fair()).Lock(ctx) })
			}
			synctest.Wait()
			if waiting(name) != n {
				t.Fatalf("%d wait for %q; want %d", waiting(name), name, n)
			}
			return cancel
		}
		giveUpFree := waiters("free", 1)
		for i := range lockedNames {
			waiters(fmt.Sprint("locked-", i), 100)()
		}
		synctest.Wait()
		began := time.Now()
		giveUpFree()
		synctest.Wait()
		if waiting("free") != 0 {
			t.Errorf("the store has not received the Cancel of a place, with %d Cancels of other names under way", running)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it received the Cancel after %v", d)
		}
		close(answer)
		all.Wait()
		time.Sleep(2 * ttl)
		for i := range lockedNames {
			if n := waiting(fmt.Sprint("locked-", i)); n != 0 {
				t.Errorf("%d places of name %d were never cancelled", n, i)
			}
		}
		if most < lockedNames || most > 64 {
			t.Errorf("%d Cancels were under way at once", most)
		}
	})
}

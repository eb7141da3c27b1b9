package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A call of LockAll has waited long for its second part, and has given back the first, which is free since.
// When it gets the second, it keeps that for the one exchange that the first needs, also if the store is
// far. Otherwise a waiter behind it has the second part for as long as that likes.
func TestLockAllOfAFreePartFarAway(t *testing.T) {
	for _, far := range []time.Duration{time.Millisecond, 25 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := &hooks{Backend: store}
			h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
				time.Sleep(far)
				return next()
			}
			cfg := &holdfast.Config{TTL: 3 * time.Second}
			c, other := client(t, h, cfg), client(t, store, cfg)
			held := lock(t, other, "b")
			go func() { // it waits behind the call, and keeps the lock for long
				time.Sleep(time.Second)
				if l, err := client(t, store, cfg).Mutex("b").Lock(context.Background()); err == nil {
					time.Sleep(10 * time.Second)
					_ = l.Release()
				}
			}()
			time.AfterFunc(2*time.Second, func() { _ = held.Release() })
			start := time.Now()
			m, err := holdfast.LockAll(t.Context(), c.Mutex("a"), c.Mutex("b"))
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > 3*time.Second {
				t.Errorf("exchanges of %v: %v; want about 2 s", far, d)
			}
			if err := m.Release(); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Second)
		})
	}
}

package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Close waits at most a second for an Observer.
func TestCloseWithABlockedObserver(t *testing.T) {
	for _, what := range []string{"Waiting", "Acquired", "WaitEnded", "Released", "LeaseEnded", "Opened", "Exchanged"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				stuck := make(chan struct{})
				inside := make(chan struct{}, 100)
				block := func() { inside <- struct{}{}; <-stuck }
				o := &holdfast.Observer{}
				switch what {
				case "Waiting":
					o.Waiting = func(holdfast.Waiting) { block() }
				case "Acquired":
					o.Acquired = func(string, uint64, time.Duration) { block() }
				case "WaitEnded":
					o.WaitEnded = func(context.Context, holdfast.WaitEnd) { block() }
				case "Released":
					o.Released = func(string, uint64, time.Duration, error) { block() }
				case "LeaseEnded":
					o.LeaseEnded = func(holdfast.LeaseEnd) { block() }
				case "Opened":
					o.Opened = func(*holdfast.Client) { block() }
				case "Exchanged":
					o.Exchanged = func(holdfast.Exchange) { block() }
				}
				c, err := holdfast.New(t.Context(), store, &holdfast.Config{TTL: ttl, Observer: o})
				if err != nil {
					t.Fatal(err)
				}
				other := client(t, store, nil)
				var held *holdfast.Lease
				if what == "Waiting" {
					held = lock(t, other, "x")
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if l, err := c.Mutex("x").Lock(context.Background()); err == nil {
						_ = l.Release()
					}
				}()
				<-inside
				closed := make(chan struct{})
				go func() { defer close(closed); _ = c.Close(context.Background()) }()
				select {
				case <-closed:
				case <-time.After(3 * time.Second):
					t.Error("Close waits for the Observer")
				}
				close(stuck)
				<-closed
				<-done
				if held != nil {
					release(t, held)
				}
			})
		})
	}
}

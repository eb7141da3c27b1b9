package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A reader's Release beside Close says that the lease was released, whichever gives the grant back.
func TestReaderReleasedBesideClose(t *testing.T) {
	for range 200 {
		c := must(holdfast.New(t.Context(), memlock.New(), nil))(t)
		r := must(c.RWMutex("x").RLock(t.Context()))(t)
		ctx := r.Context(t.Context())
		for range 300 { // Release takes a while to cancel them
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			context.AfterFunc(child, func() {})
		}
		released := make(chan error, 1)
		go func() { released <- r.Release() }()
		<-ctx.Done()
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-released; err != nil && !errors.Is(err, holdfast.ErrReleased) {
			t.Fatalf("Release: %v", err)
		}
	}
}

// A call of LockAll that fails holds nothing any more, a part for reading included.
func TestFailedLockAllHoldsNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, &hooks{Backend: store, release: func(_ context.Context, _ driver.Hold, next func() error) error {
			time.Sleep(time.Millisecond)
			return next()
		}}, nil)
		held := lock(t, client(t, store, nil), "y")
		_, err := holdfast.LockAll(t.Context(), c.RWMutex("x").Reader(), c.Mutex("y", holdfast.WaitAtMost(ttl/100)))
		if !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		records(t, store, 0, 0)
		release(t, held)
	})
}

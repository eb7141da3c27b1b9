package holdfast_test

import (
	"context"
	"errors"
	"sync"
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
		store := memlock.New()
		c := must(holdfast.New(t.Context(), store, nil))(t)
		held := lock(t, c, "x")
		first, last := lockAsync(t, c.RWMutex("x").RLock), lockAsync(t, c.RWMutex("x").RLock)
		for len(c.Wanted()) < 2 {
			time.Sleep(time.Microsecond)
		}
		release(t, held)
		r := <-last
		if other := <-first; other.Token() != r.Token() {
			t.Fatal("the readers do not share a grant")
		} else {
			release(t, other)
		}
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
		other := client(t, store, nil)
		writer, held := lock(t, other, "x"), lock(t, other, "y")
		failed := make(chan error, 1)
		go func() {
			_, err := holdfast.LockAll(t.Context(), c.RWMutex("x").Reader(), c.Mutex("y", holdfast.WaitAtMost(ttl/100)))
			r := must(store.Inspect(context.Background(), "x"))(t)
			if len(r.Holders) > 0 {
				t.Errorf("it still has %+v", r.Holders)
			}
			failed <- err
		}()
		synctest.Wait()
		reader := reads(t, c, 1)[0]
		release(t, writer)
		release(t, acquired(t, "the reader that shares its grant", reader))
		if err := <-failed; !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		release(t, held)
	})
}

// Readers that are let in while the client is closed: each call returns, each lease ends once, and the store
// has nothing left.
func TestCloseWhileReadersAreLetIn(t *testing.T) {
	granted := 0
	for i := range 200 {
		store := memlock.New()
		var e ends
		c := must(holdfast.New(t.Context(), store, &holdfast.Config{Observer: e.observer()}))(t)
		other := must(holdfast.New(t.Context(), store, nil))(t)
		held := lock(t, other, "x")
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				l, err := c.RWMutex("x").RLock(t.Context())
				if err == nil {
					err = l.Release()
				}
				if err != nil && !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrReleased) {
					t.Error(err)
				}
			})
		}
		for len(c.Wanted()) < 20 {
			time.Sleep(time.Microsecond)
		}
		release(t, held)
		time.Sleep(time.Duration(i%20) * time.Microsecond) // they are let in meanwhile
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		calls.Wait()
		records(t, store, 0, 0)
		if err := other.Close(context.Background()); err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		waits := 0
		for _, w := range e.waits {
			if w.Outcome == holdfast.OutcomeGranted {
				waits++
			}
		}
		if waits != len(e.leases) {
			t.Errorf("%d leases were granted, and %d ended", waits, len(e.leases))
		}
		granted += waits
		e.mu.Unlock()
	}
	t.Logf("%d leases of 4000 calls", granted)
}

package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A renewal says that the lock was handed over while the waiter is asking. Before the waiter looks,
// the store is out of its reach for longer than that grant lasts, and the next one in line
// gets the lock. When the waiter asks again and is told to wait, the old news must not be taken
// for a grant that this newer exchange has proven. The model found it (model/client.pml,
// PROOF_OF_ANOTHER).
func TestNewsOfAGrantThatRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		held := lock(t, client(t, store, nil), "x")
		var asks atomic.Int32
		var granted atomic.Int64 // when the renewal said so; from then on nothing gets through
		var back atomic.Bool     // until now
		h := &hooks{Backend: store}
		h.acquire = func(ctx context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			switch n := asks.Add(1); {
			case n == 1:
				reply, err := next()
				reply.Wake = nil // pushes get lost
				reply.Retry = 3 * time.Second
				return reply, err
			case n == 2: // under way, and lost, while the renewal goes through
				<-ctx.Done()
				return driver.Reply{}, driver.ErrUncertain
			case time.Now().UnixNano()-granted.Load() < int64(ttl-200*time.Millisecond):
				return driver.Reply{}, driver.ErrUncertain
			default: // under way while the grant runs out
				time.Sleep(time.Second)
				back.Store(true)
				return next()
			}
		}
		h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			if granted.Load() != 0 && !back.Load() {
				return nil, driver.ErrUncertain
			}
			changes, err := next()
			for _, c := range changes {
				if c.State == driver.Granted && granted.CompareAndSwap(0, time.Now().UnixNano()) {
					break
				}
			}
			return changes, err
		}
		victim, next := taking(t, h), taking(t, store)
		time.Sleep(3100 * time.Millisecond) // the victim asks again
		release(t, held)
		second := <-next
		if granted.Load() == 0 {
			t.Fatal("no renewal told the victim of its grant")
		}
		time.Sleep(3 * time.Second) // the victim asks, and waits
		select {
		case first := <-victim:
			t.Fatalf("two hold the lock: token %d, %v, and token %d, %v", first.Token(), first.Err(), second.Token(), second.Err())
		default:
		}
		release(t, second)
		if l := <-victim; l.Token() <= second.Token() {
			t.Errorf("token %d after %d", l.Token(), second.Token())
		}
	})
}

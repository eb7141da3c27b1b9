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

// A renewal reports that the lock was handed over while the waiter is asking. Before the waiter
// reads that, the store is unreachable for longer than the grant lasts, and the next waiter gets
// the lock. When the waiter asks again and has to wait, the old result must not count as a grant
// that the newer exchange has proved. The model found this (model/client.pml, PROOF_OF_ANOTHER).
func TestRenewalOfAnExpiredGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		held := lock(t, client(t, store, nil), "x")
		var asks atomic.Int32
		var granted atomic.Int64 // when the renewal reported it; from then on every exchange is lost
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
			default: // under way while the grant expires
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
			t.Fatal("no renewal reported the grant to the victim")
		}
		time.Sleep(3 * time.Second) // the victim asks, and waits
		select {
		case first := <-victim:
			t.Fatalf("two hold the lock: token %d, %v, and token %d, %v", first.Token(), first.Err(), second.Token(),
				second.Err())
		default:
		}
		release(t, second)
		if l := <-victim; l.Token() <= second.Token() {
			t.Errorf("token %d after %d", l.Token(), second.Token())
		}
	})
}

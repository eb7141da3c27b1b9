package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A store withdraws a grant that it has not reported, because its replicas lack it. A renewal of
// the place in the queue that has seen the grant is under way. When that renewal is answered, the
// next waiter has the lock. The client must not believe the answer, and the request goes on under
// another ID.
func TestRenewalOfASpentRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		held := lock(t, client(t, store, nil), "x")
		var mu sync.Mutex
		var ids []string // of the requests, each once
		seen, asked := make(chan struct{}), make(chan struct{})
		h := &hooks{Backend: store}
		h.acquire = func(ctx context.Context, req *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			mu.Lock()
			again := len(ids) > 0 && ids[len(ids)-1] == req.ID
			if !again {
				ids = append(ids, req.ID)
			}
			n := len(ids)
			mu.Unlock()
			if again && n == 1 { // the next waiter gets the lock
				<-seen
				s, err := store.Open(ctx, driver.SessionConfig{ID: "other", TTL: ttl})
				if err != nil {
					t.Error(err)
				}
				if err := s.Cancel(ctx, req.Name, req.ID); err != nil {
					t.Error(err)
				}
				return driver.Reply{}, fmt.Errorf("%w, %w: taken back", driver.ErrUnavailable, driver.ErrSpent)
			}
			reply, err := next()
			reply.Wake = nil // pushes get lost
			reply.Retry = 2 * time.Second
			if n == 2 && !again {
				close(asked)
			}
			return reply, err
		}
		h.renew = func(_ context.Context, _ []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			changes, err := next()
			for _, c := range changes {
				select {
				case <-seen:
				default:
					if c.State == driver.Granted {
						close(seen)
						<-asked
						time.Sleep(10 * time.Millisecond) // it waits again
					}
				}
			}
			return changes, err
		}
		victim, next := taking(t, h), taking(t, store)
		release(t, held)
		second := <-next
		time.Sleep(50 * time.Millisecond)
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
		if len(ids) < 2 {
			t.Errorf("it was asked as %q only", ids)
		}
	})
}

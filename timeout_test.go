package holdfast_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A wait in the queue fails about a TTL after the store has fallen silent. WaitAtMost does not
// report that the lock is held when nobody knows.
func TestWaitInQueueAtASilentStore(t *testing.T) {
	for name, o := range map[string][]holdfast.Option{"wait": nil, "wait at most": {holdfast.WaitAtMost(ttl)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				l := lock(t, client(t, store, nil), "x")
				conn := drivertest.Faulty(store)
				c := client(t, conn, nil)
				got := make(chan error, 1)
				go func() { _, err := c.Mutex("x", o...).Lock(t.Context()); got <- err }()
				time.Sleep(time.Second)
				heal := conn.Cut()
				began := time.Now()
				err := <-got
				if !errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) ||
					errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("%v; want ErrUncertain or ErrUnavailable", err)
				}
				if took := time.Since(began); took > 2*ttl {
					t.Errorf("it took %v; the TTL is %v", took, ttl)
				}
				heal()
				release(t, l)
			})
		})
	}
}

package holdfast_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A stranger has sent a push about a grant that the store has not made. When the store reports
// that, the waiter also cancels its place in the queue. Otherwise the store would hand the lock to
// it, and nobody would use that grant for a TTL.
func TestPlaceOfAForgedGrant(t *testing.T) {
	for name, learns := range map[string]func(*testing.T, *holdfast.Lease){
		"renewal": func(_ *testing.T, l *holdfast.Lease) { <-l.Done() },
		"release": func(t *testing.T, l *holdfast.Lease) {
			if err := l.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release: %v; want ErrLost", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				holder := client(t, store, nil)
				held := lock(t, holder, "x")
				var forged atomic.Bool
				h := &hooks{Backend: store}
				h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
					reply, err := next()
					if reply.Wake != nil && forged.CompareAndSwap(false, true) {
						wake := make(chan uint64, 1)
						wake <- held.Token() + 1
						reply.Wake = wake
					}
					return reply, err
				}
				l := <-taking(t, h)
				learns(t, l)
				if err := l.Err(); l.Token() != held.Token()+1 || err == nil {
					t.Fatalf("token %d, %v; want the forged one, which has ended", l.Token(), err)
				}
				time.Sleep(100 * time.Millisecond)
				if rec, err := holder.Inspect(t.Context(), "x"); err != nil || rec.Waiting != 0 || len(rec.Holders) != 1 || rec.Holders[0].Token != held.Token() {
					t.Errorf("Inspect = %+v, %v; want the true holder, and nobody waiting", rec, err)
				}
				release(t, held)
				release(t, lock(t, holder, "x"))
			})
		})
	}
}

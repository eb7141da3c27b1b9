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
	for name, learns := range map[string]func(*testing.T, *holdfast.Lease, *hooks){
		"renewal": func(_ *testing.T, l *holdfast.Lease, _ *hooks) { <-l.Done() },
		"release": func(t *testing.T, l *holdfast.Lease, _ *hooks) {
			if err := l.Release(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Release: %v; want ErrLost", err)
			}
		},
		"release whose first answer is lost": func(t *testing.T, l *holdfast.Lease, h *hooks) {
			var lost atomic.Bool
			h.release = func(_ context.Context, _ driver.Hold, next func() error) error {
				if err := next(); lost.Swap(true) {
					return err
				}
				return driver.ErrUncertain
			}
			if err := l.Release(); !errors.Is(err, holdfast.ErrUncertain) {
				t.Errorf("Release: %v; want ErrUncertain", err)
			}
		},
		"downgrade": func(t *testing.T, l *holdfast.Lease, _ *hooks) {
			if err := l.Downgrade(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Downgrade: %v; want ErrLost", err)
			}
		},
		"release of an offer": func(t *testing.T, l *holdfast.Lease, _ *hooks) {
			if _, _, err := l.HandOff(); err != nil {
				t.Error(err)
			}
			if err := l.Release(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("Release: %v; want ErrReleased", err)
			}
		},
		"renewal of an offer": func(t *testing.T, l *holdfast.Lease, _ *hooks) {
			_, adopted, err := l.HandOff()
			if err != nil {
				t.Error(err)
			}
			<-adopted
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
				learns(t, l, h)
				if err := l.Err(); l.Token() != held.Token()+1 || err == nil {
					t.Fatalf("token %d, %v; want the forged one, which has ended", l.Token(), err)
				}
				time.Sleep(100 * time.Millisecond)
				if rec, err := holder.Inspect(t.Context(), "x"); err != nil || rec.Waiting != 0 || len(rec.Holders) != 1 ||
					rec.Holders[0].Token != held.Token() {
					t.Errorf("Inspect = %+v, %v; want the true holder, and nobody waiting", rec, err)
				}
				release(t, held)
				release(t, lock(t, holder, "x"))
			})
		})
	}
}

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

// The giver's first exchange was not answered, and arrives after the hand-off is over: it keeps the name
// for nobody.
func TestHandOffBeforeALateExchange(t *testing.T) {
	ends := map[string]func(t *testing.T, l *holdfast.Lease, ticket string, taker *holdfast.Client){
		"adopted": func(t *testing.T, _ *holdfast.Lease, ticket string, taker *holdfast.Client) {
			got := take(t)(taker.Adopt(t.Context(), ticket))
			time.Sleep(time.Second)
			release(t, got)
		},
		"released": func(t *testing.T, l *holdfast.Lease, _ string, _ *holdfast.Client) { release(t, l) },
		"adopted and released": func(t *testing.T, l *holdfast.Lease, ticket string, taker *holdfast.Client) {
			got := take(t)(taker.Adopt(t.Context(), ticket))
			if err := l.Release(); !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("the giver's Release: %v", err)
			}
			release(t, got)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				giver := client(t, &hooks{Backend: store, late: once("acquire", 100*time.Millisecond)}, nil)
				taker := client(t, store, nil)
				l := lock(t, giver, "x") // by its second exchange
				ticket, _, err := l.HandOff()
				if err != nil {
					t.Fatal(err)
				}
				end(t, l, ticket, taker)
				time.Sleep(4 * time.Second)
				release(t, take(t)(taker.Mutex("x").TryLock(t.Context())))
			})
		})
	}
}

// The same for a lease that somebody has broken: the store answers its Release that it has ended.
func TestReleaseOfALossBeforeALateExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := client(t, &hooks{Backend: store, late: once("acquire", 100*time.Millisecond)}, nil), client(t, store, nil)
		l := lock(t, c, "x") // by its second exchange
		if err := breakLock(other, "x", l.GrantToken()); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(4 * time.Second)
		release(t, take(t)(other.Mutex("x").TryLock(t.Context())))
	})
}

// The same for a request whose session has ended it meanwhile.
func TestSpentBeforeALateExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := &hooks{Backend: store, late: once("acquire", 100*time.Millisecond)}
		n := 0
		h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			if n++; n == 1 {
				return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
			}
			return next()
		}
		c, other := client(t, h, nil), client(t, store, nil)
		l := lock(t, c, "x") // by its third exchange
		time.Sleep(time.Second)
		release(t, l)
		time.Sleep(4 * time.Second)
		release(t, take(t)(other.Mutex("x").TryLock(t.Context())))
	})
}

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

// doubting is a store whose sessions doubt what a test says.
type doubting struct {
	hooks
	doubt func(name string)
}

func (d *doubting) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	d.doubt = cfg.Doubt
	return d.hooks.Open(ctx, cfg)
}

// TestDoubt: a doubt makes the client ask the store about that name at once, however many doubts
// there are. Only what the store answers ends a lease.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		d := &doubting{hooks: hooks{Backend: store}}
		var renewals, holds, down atomic.Int64
		d.renew = func(_ context.Context, h []driver.Hold, next func() ([]driver.Change, error)) ([]driver.Change, error) {
			renewals.Add(1)
			holds.Add(int64(len(h)))
			if down.Load() != 0 {
				return nil, driver.ErrUncertain
			}
			time.Sleep(time.Millisecond)
			return next()
		}
		c := client(t, d, nil)
		x, y := lock(t, c, "x"), lock(t, c, "y")
		for range 1000 {
			d.doubt("x")
			d.doubt("of nobody")
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(100 * time.Millisecond)
		if n := renewals.Load(); n < 3 || n > 5 || holds.Load() != n { // one each 51 ms
			t.Errorf("%d exchanges for %d holds", n, holds.Load())
		}
		if x.Err() != nil || y.Err() != nil {
			t.Errorf("lost for a doubt: %v, %v", x.Err(), y.Err())
		}
		if err := store.Break(t.Context(), "x", x.Token()); err != nil {
			t.Fatal(err)
		}
		down.Store(1) // nothing is known then
		d.doubt("x")
		time.Sleep(100 * time.Millisecond)
		if err := x.Err(); err != nil {
			t.Errorf("lost though the store did not answer: %v", err)
		}
		down.Store(0)
		d.doubt("x")
		time.Sleep(100 * time.Millisecond)
		if !errors.Is(x.Err(), holdfast.ErrLost) || y.Err() != nil {
			t.Errorf("after the break: %v, %v", x.Err(), y.Err())
		}
		release(t, y)
		before := renewals.Load()
		d.doubt("y")
		time.Sleep(100 * time.Millisecond)
		if n := renewals.Load() - before; n != 0 {
			t.Errorf("%d exchanges about a lease that was released", n)
		}
	})
}

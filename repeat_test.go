package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// errIdle is the error of a connection that the server had ended while it was idle.
var errIdle = fmt.Errorf("%w: EOF", driver.ErrUncertain)

// ending is a store whose connections end. The first n exchanges of each call after a lease was
// granted return errIdle; they arrive if arrives is set. All exchanges are counted.
type ending struct {
	*hooks
	n       int32
	arrives bool
	failed  atomic.Int32
}

func ends(n int32, arrives bool) *ending {
	e := &ending{hooks: &hooks{Backend: memlock.New()}, n: n, arrives: arrives}
	e.release = func(_ context.Context, _ driver.Hold, next func() error) error { return e.ask(next) }
	e.down = e.ask
	return e
}

func (e *ending) ask(next func() error) error {
	if e.failed.Add(1) > e.n {
		return next()
	}
	if e.arrives {
		_ = next()
	}
	return errIdle
}

func (e *ending) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = e.ask(func() (err error) { r, err = e.Backend.Inspect(ctx, name); return err })
	return r, err
}

func (e *ending) List(ctx context.Context, prefix, after string, limit int) (r []driver.Record, err error) {
	err = e.ask(func() (err error) { r, err = e.Backend.List(ctx, prefix, after, limit); return err })
	return r, err
}

func (e *ending) Break(ctx context.Context, name string, token uint64) error {
	return e.ask(func() error { return e.Backend.Break(ctx, name, token) })
}

func (e *ending) SetLimit(ctx context.Context, name string, limit int) error {
	return e.ask(func() error { return e.Backend.SetLimit(ctx, name, limit) })
}

// calls are those that ask the store once and report what it answered. ends says that a call ends
// the grant, so that the store cannot tell a repeated exchange from one for a grant that was lost.
var calls = map[string]struct {
	ends bool
	do   func(ctx context.Context, c *holdfast.Client) error
}{
	"Release": {true, func(ctx context.Context, c *holdfast.Client) error {
		l, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			return err
		}
		return l.Release()
	}},
	"Release of a hand-off": {true, func(ctx context.Context, c *holdfast.Client) error {
		l, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			return err
		}
		if _, _, err = l.HandOff(); err != nil {
			return err
		}
		return l.Release()
	}},
	"Downgrade": {false, func(ctx context.Context, c *holdfast.Client) error {
		l, err := c.RWMutex("x").Lock(ctx)
		if err != nil {
			return err
		}
		return l.Downgrade()
	}},
	"Break": {true, func(ctx context.Context, c *holdfast.Client) error {
		l, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			return err
		}
		return c.Break(ctx, "x", l.Token())
	}},
	"SetLimit": {false, func(ctx context.Context, c *holdfast.Client) error {
		if _, err := c.Semaphore("x", 3).Acquire(ctx, 1); err != nil {
			return err
		}
		return c.SetLimit(ctx, "x", 5)
	}},
	"Inspect": {false, func(ctx context.Context, c *holdfast.Client) error {
		_, err := c.Inspect(ctx, "x")
		return err
	}},
	"Locks": {false, func(ctx context.Context, c *holdfast.Client) error {
		for _, err := range c.Locks(ctx, "") {
			if err != nil {
				return err
			}
		}
		return nil
	}},
}

// Connections that ended while they were idle fail no call, however many there are in a row.
func TestIdleConnectionsThatEnded(t *testing.T) {
	for name, call := range calls {
		for n := range int32(4) {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if err := call.do(t.Context(), client(t, ends(n, false), nil)); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// An exchange that arrived although its answer was lost: a repeat that finds the grant ended does
// not say that the lease was lost, nor that nobody had it.
func TestAnswersThatAreLost(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := call.do(t.Context(), client(t, ends(1, true), nil))
				switch {
				case !call.ends && err != nil:
					t.Error(err)
				case call.ends && (!errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrGone) ||
					errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrReleased)):
					t.Errorf("%v; want only ErrUncertain", err)
				}
			})
		})
	}
}

// A store that ends every connection is asked for half a second, and no longer than the context.
func TestRepeatsAreBounded(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := ends(1<<30, false)
				c := client(t, e, nil)
				within(t, "a call", 400*time.Millisecond, 700*time.Millisecond, func() {
					if err := call.do(t.Context(), c); !errors.Is(err, holdfast.ErrUncertain) {
						t.Errorf("%v; want ErrUncertain", err)
					}
				})
				if n := e.failed.Load(); n > 20 {
					t.Errorf("%d exchanges in half a second", n)
				}
				e.n = 0
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := client(t, ends(1<<30, false), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		within(t, "Inspect", 50*time.Millisecond, 60*time.Millisecond, func() {
			if _, err := c.Inspect(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v; want the context's", err)
			}
		})
	})
}

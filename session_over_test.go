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

// mortal is a store that ends all sessions and opens no others while it is down. Sessions that are
// over return ErrClosed for everything, as the contract demands.
type mortal struct {
	driver.Backend
	down atomic.Bool
	lost chan struct{} // of the latest session
}

type mortalSession struct {
	driver.Session
	over func() bool
	lost chan struct{}
}

func (b *mortal) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if b.down.Load() {
		return nil, driver.ErrUnavailable
	}
	s, err := b.Backend.Open(ctx, cfg)
	b.lost = make(chan struct{})
	return &mortalSession{s, b.down.Load, b.lost}, err
}

func (s *mortalSession) Lost() <-chan struct{} { return s.lost }

func (s *mortalSession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if s.over() {
		return driver.Reply{}, driver.ErrClosed
	}
	return s.Session.Acquire(ctx, r)
}

func (s *mortalSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if s.over() {
		return driver.ErrClosed
	}
	return s.Session.Release(ctx, h, keep)
}

func (s *mortalSession) Downgrade(ctx context.Context, h driver.Hold) error {
	if s.over() {
		return driver.ErrClosed
	}
	return s.Session.Downgrade(ctx, h)
}

func (s *mortalSession) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if s.over() {
		return driver.ErrClosed
	}
	return s.Session.Adopt(ctx, h, id, info)
}

func (s *mortalSession) SetCount(ctx context.Context, name string, n int64) (bool, error) {
	if s.over() {
		return false, driver.ErrClosed
	}
	return s.Session.SetCount(ctx, name, n)
}

// While the store has ended the session and opens no other, callers get an error for an outage:
// ErrClosed is only for callers that have closed their client.
func TestSessionOverInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		b := &mortal{Backend: store}
		c, giver := client(t, b, nil), client(t, store, nil)
		ticket, _, err := lock(t, giver, "given").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		b.down.Store(true)
		close(b.lost)
		for what, call := range map[string]func() error{
			"Lock":    func() error { _, err := c.Mutex("x").Lock(t.Context()); return err },
			"TryLock": func() error { _, err := c.Mutex("x").TryLock(t.Context()); return err },
			"Latch":   func() error { _, err := c.Latch("l").Set(t.Context(), 1); return err },
			"Adopt":   func() error { _, err := c.Adopt(t.Context(), ticket); return err },
		} {
			within(t, what, 0, 2*ttl, func() {
				if err := call(); !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrClosed) {
					t.Errorf("%s: %v; want ErrUnavailable and not ErrClosed", what, err)
				}
			})
		}
		b.down.Store(false)
		time.Sleep(time.Second)
		release(t, lock(t, c, "x"))
	})
}

// Release and Downgrade report a lost lease when the session is over and the client has not noticed
// yet.
func TestReleaseBySessionThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &mortal{Backend: memlock.New()}
		c := client(t, b, nil)
		l := lock(t, c, "x")
		w, err := c.RWMutex("y").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.down.Store(true)
		isLost(t, l.Release(), holdfast.ReasonSession)
		isLost(t, w.Downgrade(), holdfast.ReasonSession)
		isLost(t, w.Err(), holdfast.ReasonSession)
	})
}

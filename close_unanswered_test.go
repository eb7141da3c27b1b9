package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// unanswered is a store that answers no release.
type unanswered struct {
	driver.Backend
	left time.Duration // that Close of the session had
}

func (b *unanswered) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &unansweredSession{s, b}, err
}

type unansweredSession struct {
	driver.Session
	b *unanswered
}

func (s *unansweredSession) Release(ctx context.Context, _ driver.Hold, _ time.Duration) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

func (s *unansweredSession) Close(ctx context.Context) error {
	end, _ := ctx.Deadline()
	s.b.left = time.Until(end)
	return s.Session.Close(ctx)
}

// Close ends all leases at once, and then releases them 32 at a time. If the store does not answer, the last ones are
// late. All were valid when Close ended them, so none was lost.
func TestCloseOfManyLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost, all atomic.Int64
		c, err := newClient(t.Context(), &unanswered{Backend: memlock.New()}, &Config{TTL: 15 * time.Second,
			Observer: &Observer{Released: func(_ string, _ uint64, _ time.Duration, err error) {
				all.Add(1)
				if errors.Is(err, ErrLost) {
					lost.Add(1)
				}
			}}}, func() time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		const n = 100
		for i := range n {
			if _, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(29900 * time.Millisecond) // long after a renewal, and long before the end of a lease
		_ = c.Close(context.Background())
		synctest.Wait()
		if all.Load() != n || lost.Load() > 0 {
			t.Errorf("%d leases were released, %d of them lost; want %d, and none", all.Load(), lost.Load(), n)
		}
	})
}

// Releases that are not answered leave time to end the session, also within the caller's own limit.
func TestCloseLeavesTimeForTheSession(t *testing.T) {
	for _, limit := range []time.Duration{3 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := &unanswered{Backend: memlock.New()}
			c, err := New(t.Context(), b, &Config{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Mutex("x").Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_ = c.Close(ctx)
			if want := min(limit, time.Minute) / 10; b.left < want {
				t.Errorf("within %v: %v for the session; want %v", limit, b.left, want)
			}
		})
	}
}

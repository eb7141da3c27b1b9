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

// mute answers no release in time.
type mute struct{ driver.Backend }

func (b mute) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return muteSession{s}, err
}

type muteSession struct{ driver.Session }

func (muteSession) Release(ctx context.Context, _ driver.Hold, _ time.Duration) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
}

// Close ends all leases at once, and then releases them 32 at a time. A store that does not answer makes the last of
// them late. They were valid when Close ended them, so none was lost.
func TestCloseOfManyLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost, all atomic.Int64
		c, err := newClient(t.Context(), mute{memlock.New()}, &Config{TTL: 15 * time.Second, Observer: &Observer{
			Released: func(_ string, _ uint64, _ time.Duration, err error) {
				all.Add(1)
				if errors.Is(err, ErrLost) {
					lost.Add(1)
				}
			},
		}}, func() time.Duration { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		var leases []*Lease
		for i := range 100 {
			l, err := c.Mutex(fmt.Sprint("x", i)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		time.Sleep(29900 * time.Millisecond)
		for _, l := range leases {
			if err := l.Err(); err != nil || l.Left() < 8*time.Second {
				t.Fatal(err, l.Left())
			}
		}
		_ = c.Close(context.Background())
		synctest.Wait()
		if lost.Load() > 0 {
			t.Errorf("%d of %d leases were reported as lost, and all were valid when Close ended them", lost.Load(), all.Load())
		}
	})
}

package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// slowReleases is a store that answers each release after a while.
type slowReleases struct {
	driver.Backend
	delay time.Duration
	n     atomic.Int64
}

func (b *slowReleases) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &slowSession{s, b}, err
}

type slowSession struct {
	driver.Session
	b *slowReleases
}

func (s *slowSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	select {
	case <-time.After(s.b.delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.b.n.Add(1)
	return s.Session.Release(ctx, h, keep)
}

// A store that answers each release after 100 ms is not reported as silent.
func TestCloseOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowReleases{Backend: memlock.New(), delay: 100 * time.Millisecond}
		c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		const n = 2000
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := c.Mutex(fmt.Sprint("many/", i)).Lock(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		start := time.Now()
		err = c.Close(context.Background())
		t.Logf("Close after %v: %v; %d releases were answered", time.Since(start), err, b.n.Load())
		if err != nil {
			t.Error(err)
		}
	})
}

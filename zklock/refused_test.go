package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// A refused TryLock names who is in the way, also if a job of a millisecond ends meanwhile and leaves the mark of its
// minimum hold. OnlyOne needs that to know that another has run the job.
func TestRefusalNamesAHolder(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	clients := make([]*holdfast.Client, 8)
	for i := range clients {
		clients[i] = client(t, cfg, longTTL)
	}
	var refused, granted atomic.Int64
	rounds := 0
	for ; rounds < 10 || refused.Load() < 100; rounds++ {
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() {
				m := c.Mutex(fmt.Sprint("job", rounds), holdfast.MinHold(time.Hour))
				time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
				for range 2 {
					l, err := m.TryLock(context.Background())
					var e *holdfast.Error
					switch {
					case err == nil:
						granted.Add(1)
						time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
						if err := l.Release(); err != nil {
							t.Error(err)
						}
						return
					case !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e):
						t.Error(err)
					case e.Holder == nil:
						t.Errorf("round %d: refused because of nobody", rounds)
					}
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if t.Failed() || rounds > 1000 {
			t.Fatalf("round %d: %d refused", rounds, refused.Load())
		}
	}
	if n := granted.Load(); n != int64(rounds) {
		t.Errorf("%d grants in %d rounds; want one in each", n, rounds)
	}
}

package holdfast

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memlock"
)

// sleeper simulates a machine that can be suspended: timers and Go's monotonic clock stop, while
// the time at the store goes on.
func sleeper(t *testing.T) (*Client, *atomic.Int64) {
	var slept atomic.Int64
	c, err := newClient(t.Context(), memlock.New(), &Config{TTL: 10 * time.Second}, func() time.Duration {
		return time.Duration(slept.Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return c, &slept
}

// Sleep counts as elapsed time: after a sleep longer than the trust, Err reports the loss at once,
// and the context ends within a second.
func TestSuspendEndsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slept := sleeper(t)
		l, err := c.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l2, err := c.Mutex("y").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		slept.Add(int64(9 * time.Second))
		if err := l.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("Err right after a sleep of 9s: %v; want ErrLost", err)
		}
		woke := time.Now()
		<-l2.Context(t.Context()).Done()
		if d := time.Since(woke); d > time.Second {
			t.Errorf("the context ended %v after the sleep; want at most 1s", d)
		}
	})
}

// A short sleep costs as much trust as it lasted, no more.
func TestShortSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slept := sleeper(t)
		l, err := c.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			time.Sleep(time.Second)
			slept.Add(int64(2 * time.Second))
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

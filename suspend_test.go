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

// After a sleep the lock is not passed on: the store may have given it away.
func TestSuspendEndsPasses(t *testing.T) {
	for _, slept := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, sleeps := sleeper(t)
			const n = 4
			got := make(chan *Lease, n)
			for range n {
				go func() {
					l, err := c.Mutex("x").Lock(t.Context())
					if err != nil {
						t.Error(err)
					}
					got <- l
				}()
				synctest.Wait()
			}
			for range 2 { // the first has asked for itself, the second for all
				if err := (<-got).Release(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			third := <-got
			sleeps.Add(int64(slept))
			if err := third.Release(); err != nil {
				t.Fatal(err)
			}
			fourth := <-got
			if passed := fourth.grantToken == third.grantToken; passed != (slept == 0) {
				t.Errorf("passed on after a sleep of %v: %v", slept, passed)
			}
			if err := fourth.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A lease that ended during a sleep which nobody has noticed is lost, also if the store does not say so.
func TestReleaseAfterASleepWithoutAnAnswer(t *testing.T) {
	for _, sleep := range []time.Duration{0, 11 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var slept atomic.Int64
			c, err := newClient(t.Context(), &unanswered{Backend: memlock.New()}, &Config{TTL: 10 * time.Second},
				func() time.Duration { return time.Duration(slept.Load()) })
			if err != nil {
				t.Fatal(err)
			}
			l, err := c.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // the watcher looks once a second
			slept.Add(int64(sleep))
			time.Sleep(2 * awakeFor)
			if err := l.Release(); !errors.Is(err, ErrUncertain) || errors.Is(err, ErrLost) != (sleep > 0) {
				t.Errorf("Release after a sleep of %v: %v", sleep, err)
			}
			_ = c.Close(t.Context())
		})
	}
}

// A lease that MaxHold has ended during a sleep that nobody has noticed was ended by MaxHold.
func TestReleaseAfterASleepBeyondMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		c, err := newClient(t.Context(), &unanswered{Backend: memlock.New()}, &Config{TTL: 10 * time.Second},
			func() time.Duration { return time.Duration(slept.Load()) })
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Mutex("x", MaxHold(3*time.Second)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		slept.Add(int64(4 * time.Second))
		time.Sleep(2 * awakeFor)
		err = l.Release()
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrLost) || e.Reason != ReasonMaxHold {
			t.Errorf("Release: %v, reason %q; want %q", err, e.Reason, ReasonMaxHold)
		}
		_ = c.Close(t.Context())
	})
}

// ReleaseNow reports a loss that the client's clock shows, as Err does: the machine slept, the lease expired, and
// somebody else has had the lock.
func TestReleaseNowAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		store := memlock.New()
		c, err := newClient(t.Context(), store, &Config{TTL: 10 * time.Second}, func() time.Duration {
			return time.Duration(slept.Load())
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		slept.Add(int64(time.Minute))
		if err := store.Break(t.Context(), "x", l.Token()); err != nil { // it has expired
			t.Fatal(err)
		}
		other, err := New(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Mutex("x").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.ReleaseNow(); !errors.Is(err, ErrLost) {
			t.Errorf("ReleaseNow: %v; want ErrLost", err)
		}
		_ = other.Close(t.Context())
		_ = c.Close(t.Context())
	})
}

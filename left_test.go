package holdfast

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func mutex(t *testing.T, c *Client, ctx context.Context, opts ...Option) *Lease {
	t.Helper()
	l, err := c.Mutex("x", opts...).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func left(t *testing.T, what string, l interface {
	Left() time.Duration
	Valid(time.Duration) bool
}, want time.Duration) {
	t.Helper()
	if got := l.Left(); got != want {
		t.Errorf("%s: Left is %v; want %v", what, got, want)
	}
	for d, valid := range map[time.Duration]bool{0: want > 0, -1: want > 0, want: want > 0, want + 1: false} {
		if l.Valid(d) != valid {
			t.Errorf("%s: Valid(%v) is %t", what, d, !valid)
		}
	}
}

// Left is the time until the client stops trusting the lease. It includes sleep of the machine and
// MaxHold; 0 when the lease has ended in any way.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slept := sleeper(t)
		const trust = 9 * time.Second
		l := mutex(t, c, t.Context())
		left(t, "a new lease", l, trust)
		time.Sleep(time.Second)
		left(t, "after a second", l, trust-time.Second)
		slept.Add(int64(time.Second))
		left(t, "after a sleep of a second", l, trust-2*time.Second)
		inner := mutex(t, c, l.Context(t.Context()), Reentrant())
		short := mutex(t, c, l.Context(t.Context()), Reentrant(), MaxHold(3*time.Second))
		within := mutex(t, c, short.Context(t.Context()), Reentrant())
		left(t, "a borrowed lease", inner, trust-2*time.Second)
		left(t, "a borrowed lease with MaxHold", short, 3*time.Second)
		left(t, "what is borrowed from that", within, 3*time.Second)
		m, err := LockAll(t.Context(), c.Mutex("y"), c.Mutex("z", MaxHold(2*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		left(t, "several leases", m, 1980900*time.Microsecond) // up to a hundredth less than MaxHold
		slept.Add(int64(8 * time.Second))
		left(t, "after a sleep that was too long", l, 0)
		left(t, "what is borrowed, then", inner, 0)
		left(t, "several leases, then", m, 0)
		if l.Err() == nil || !errors.Is(l.Err(), ErrLost) {
			t.Errorf("after a sleep that was too long: %v", l.Err())
		}
		if err := l.Release(); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		l = mutex(t, c, t.Context())
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		left(t, "a released lease", l, 0)
		left(t, "no lease", (*Lease)(nil), 0)
		left(t, "no leases", (*MultiLease)(nil), 0)
		l = mutex(t, c, t.Context())
		for range 100 { // renewed
			time.Sleep(time.Second)
			if d := l.Left(); d < trust/2 || d > trust {
				t.Fatalf("Left of a lease that is renewed is %v", d)
			}
		}
	})
}

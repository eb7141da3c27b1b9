package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Two runs are at least nine tenths of a tick apart, whatever the time of the clock at the first.
func TestOnlyOneAcrossBorders(t *testing.T) {
	for _, every := range []time.Duration{time.Minute, 24 * time.Hour} {
		for at := time.Duration(0); at < every; at += every / 20 {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				c := client(t, store, &holdfast.Config{TTL: every / 10})
				time.Sleep(time.Until(time.Now().Truncate(every).Add(every + at - every/60)))
				var last time.Time
				runs := 0
				for range 4 * 60 {
					ran, err := c.OnlyOne(t.Context(), "job", every, func(context.Context) error { return nil })
					if err != nil {
						t.Fatal(err)
					}
					if ran {
						if since := time.Since(last); !last.IsZero() && since < every*9/10 {
							t.Errorf("ticks of %v, first run %v into one: the next but %v later", every, at, since)
						}
						last = time.Now()
						runs++
					}
					time.Sleep(every / 60)
				}
				if runs < 4 {
					t.Errorf("ticks of %v: %d runs in four", every, runs)
				}
			})
		}
	}
}

// On machines whose clocks differ by less than a tenth of a tick, a job runs once per tick, on any
// of them; also on a single machine that tries exactly once a tick.
func TestOnlyOne(t *testing.T) {
	const every, ticks = time.Minute, 20
	for _, skews := range [][]time.Duration{{0}, {-5 * time.Second}, {5 * time.Second},
		{-5 * time.Second, 0, 0, 4 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			begin := time.Now().Truncate(every).Add(every)
			var runs [ticks]atomic.Int32
			var group sync.WaitGroup
			for _, skew := range skews {
				h := &hooks{Backend: store, acquire: func(_ context.Context, _ *driver.Request,
					next func() (driver.Reply, error)) (driver.Reply, error) {
					time.Sleep(5 * time.Millisecond) // the way to the store
					return next()
				}}
				c := client(t, h, nil)
				group.Go(func() {
					for i := range ticks {
						time.Sleep(time.Until(begin.Add(time.Duration(i)*every + skew)))
						ran, err := c.OnlyOne(t.Context(), "job", every, func(ctx context.Context) error { return ctx.Err() })
						if err != nil {
							t.Error(err)
						}
						if ran {
							runs[i].Add(1)
						}
					}
				})
			}
			group.Wait()
			for i := range runs {
				if n := runs[i].Load(); n != 1 {
					t.Errorf("clocks %v: %d runs in tick %d", skews, n, i)
				}
			}
		})
	}
}

func TestOnlyOneErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		if _, err := c.OnlyOne(t.Context(), "job", 0, nil); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a tick of 0: %v", err)
		}
		failed := errors.New("failed")
		if ran, err := c.OnlyOne(t.Context(), "other", time.Minute, func(context.Context) error { return failed }); !ran ||
			!errors.Is(err, failed) {
			t.Errorf("a job that fails: %v, %v", ran, err)
		}
	})
}

// A run that failed may be repeated at once, elsewhere, if that is asked for.
func TestRetryFailed(t *testing.T) {
	const every = time.Hour
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h, silence := silent(store)
		a, b := client(t, h, nil), client(t, store, nil)
		failed := errors.New("failed")
		run := func(c *holdfast.Client, name string, result error, opts ...holdfast.Option) bool {
			ran, err := c.OnlyOne(t.Context(), name, every, func(context.Context) error { return result }, opts...)
			if ran && !errors.Is(err, result) || !ran && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return ran
		}
		if !run(a, "kept", failed) || run(b, "kept", nil) {
			t.Error("without the option, a run that failed is repeated within the tick")
		}
		retry := holdfast.RetryFailed()
		if !run(a, "retried", failed, retry) || !run(b, "retried", nil, retry) || run(a, "retried", nil, retry) {
			t.Error("a run that failed is not repeated once")
		}

		// A panic is a failure.
		func() {
			defer func() { _ = recover() }()
			_, _ = a.OnlyOne(t.Context(), "panic", every, func(context.Context) error { panic("x") }, retry)
		}()
		if !run(b, "panic", nil) {
			t.Error("a run that panicked is not repeated")
		}

		// Of several locks those with the option are not kept.
		all := func(name string, opts ...holdfast.Option) holdfast.Part {
			return a.Mutex(name, append(opts, holdfast.MinHold(every))...)
		}
		err := holdfast.DoAll(t.Context(), func(context.Context) error { return failed }, all("all/retried", retry),
			all("all/kept"))
		if !errors.Is(err, failed) {
			t.Errorf("DoAll: %v", err)
		}
		if !run(b, "all/retried", nil) || run(b, "all/kept", nil) {
			t.Error("after DoAll has failed, the name with the option is kept, or the other is not")
		}

		// A holder that dies does not: the name is kept although its lease expires.
		l := take(t)(a.Mutex("dead", holdfast.MinHold(holdfast.TickHold(every)), retry).TryLock(t.Context()))
		silence.Store(true)
		time.Sleep(2 * ttl)
		if run(b, "dead", nil) {
			t.Error("the run of a dead client is repeated within the tick")
		}
		silence.Store(false)
		isLost(t, l.ReleaseNow(), holdfast.ReasonUnreachable)
		time.Sleep(ttl)
		if run(b, "dead", nil) {
			t.Error("a run is repeated after its lease expired at the store")
		}

		// The store does not answer: the client goes on in the background.
		ran, err := a.OnlyOne(t.Context(), "silent", every, func(context.Context) error {
			silence.Store(true)
			return failed
		}, retry)
		if !ran || !errors.Is(err, failed) || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a silent store: %v, %v", ran, err)
		}
		silence.Store(false)
		time.Sleep(ttl)
		if !run(b, "silent", nil) {
			t.Error("a run that failed while the store was silent is not repeated")
		}
	})
}

// ReleaseNow ends the grant at once, and no other grant.
func TestReleaseNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, nil)
		long := holdfast.MinHold(time.Hour)
		l := take(t)(c.Mutex("x", long).Lock(t.Context()))
		next := lockAsync(t, c.Mutex("x").Lock)
		stillWaiting(t, "the next", next)
		if err := l.ReleaseNow(); err != nil {
			t.Error(err)
		}
		n := <-next
		if err := l.ReleaseNow(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("a second release: %v", err)
		}
		if err := n.Err(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		release(t, n)
		m, err := holdfast.LockAll(t.Context(), c.Mutex("x", long), c.Mutex("y", long))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.ReleaseNow(); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"x", "y"} {
			release(t, take(t)(c.Mutex(name).TryLock(t.Context())))
		}
		var none *holdfast.Lease
		if err := none.ReleaseNow(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("no lease: %v", err)
		}
	})
}

// The next run is possible when NextRun says so, and not before.
func TestNextRun(t *testing.T) {
	const every = time.Hour
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		in := func() time.Duration {
			next, err := c.NextRun(t.Context(), "job", every)
			if err != nil {
				t.Fatal(err)
			}
			return time.Until(next)
		}
		near := func(when string, want time.Duration) {
			t.Helper()
			if d := in(); d < want-time.Second || d > want+time.Second {
				t.Errorf("%s: the next run is possible in %v; want %v", when, d, want)
			}
		}
		near("never run", 0)
		ran, err := c.OnlyOne(t.Context(), "job", every, func(context.Context) error {
			time.Sleep(10 * time.Minute)
			near("during a run", 44*time.Minute)
			return nil
		})
		if !ran || err != nil {
			t.Fatal(ran, err)
		}
		near("after a run", 44*time.Minute)
		nothing := func(context.Context) error { return nil }
		time.Sleep(in() - time.Second)
		if ran, _ := c.OnlyOne(t.Context(), "job", every, nothing); ran {
			t.Error("it ran before the time that NextRun had given")
		}
		time.Sleep(2 * time.Second)
		if ran, _ := c.OnlyOne(t.Context(), "job", every, nothing); !ran {
			t.Error("it did not run after the time that NextRun had given")
		}
		part := client(t, partly{memlock.New()}, nil)
		if next, err := part.NextRun(t.Context(), "job", every); err != nil || time.Until(next) != time.Second {
			t.Errorf("beside servers that keep the name: %v, %v; want a second", time.Until(next), err)
		}
		if _, err := c.NextRun(t.Context(), "job", 0); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a tick of 0: %v", err)
		}
	})
}

// partly is a store of which enough servers are free in a second.
type partly struct{ driver.Backend }

func (partly) Inspect(_ context.Context, name string) (driver.Record, error) {
	part := []driver.Holder{{Left: time.Second, Partial: true}, {Left: 50 * time.Minute, Kept: true, Partial: true}}
	return driver.Record{Name: name, Kind: driver.Lock, Partial: part, FreeIn: time.Second}, nil
}

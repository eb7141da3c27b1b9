package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// No error is a context's unless the caller's own context has ended: the limits that a silent store
// runs into are not the caller's.
func TestSilenceIsNoContextError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := drivertest.Faulty(memlock.New())
		c := client(t, conn, nil)
		ticket, _, err := lock(t, c, "given").HandOff()
		if err != nil {
			t.Fatal(err)
		}
		l, w := lock(t, c, "l"), take(t)(c.RWMutex("w").Lock(t.Context()))
		conn.Cut()
		calls := map[string]func(context.Context) error{
			"Lock":    func(ctx context.Context) error { _, err := c.Mutex("x").Lock(ctx); return err },
			"TryLock": func(ctx context.Context) error { _, err := c.Mutex("x").TryLock(ctx); return err },
			"LockAll": func(ctx context.Context) error {
				_, err := holdfast.LockAll(ctx, c.Mutex("x"), c.Mutex("y"))
				return err
			},
			"Adopt":      func(ctx context.Context) error { _, err := c.Adopt(ctx, ticket); return err },
			"Latch.Set":  func(ctx context.Context) error { _, err := c.Latch("n").Set(ctx, 1); return err },
			"Latch.Wait": func(ctx context.Context) error { return c.Latch("n").Wait(ctx) },
			"Release":    func(context.Context) error { return l.Release() },
			"Downgrade":  func(context.Context) error { return w.Downgrade() },
			"WaitAtMost": func(ctx context.Context) error {
				_, err := c.Mutex("x", holdfast.WaitAtMost(time.Second)).Lock(ctx)
				return err
			},
		}
		for name, call := range calls {
			err := call(context.Background())
			if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("%s without a deadline: %v, which is a context's error", name, err)
			}
			if !errors.Is(err, holdfast.ErrUncertain) && !errors.Is(err, holdfast.ErrUnavailable) &&
				!errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%s: %v; want ErrUnavailable or ErrUncertain", name, err)
			}
			if name == "Release" || name == "Downgrade" || name == "WaitAtMost" {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			within(t, name, 0, 150*time.Millisecond, func() {
				if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s with a deadline: %v", name, err)
				}
			})
			cancel()
		}
	})
}

// WaitAtMost ends during an exchange. The store answers as fast as usual and has reported that the
// lock is held, so the error is ErrHeld.
func TestWaitAtMostDuringAnExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var silent atomic.Bool
		h := &hooks{Backend: store}
		h.acquire = func(ctx context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
			if silent.Load() {
				<-ctx.Done()
				return driver.Reply{}, unanswered(ctx)
			}
			reply, err := next()
			reply.Wake, reply.Retry = nil, 7*time.Millisecond // a store that cannot push
			select {
			case <-time.After(25 * time.Millisecond):
				return reply, err
			case <-ctx.Done():
				return driver.Reply{}, unanswered(ctx)
			}
		}
		c := client(t, h, nil)
		l := lock(t, client(t, store, nil), "x")
		for d := 60 * time.Millisecond; d < 140*time.Millisecond; d += time.Millisecond {
			_, err := c.Mutex("x", holdfast.WaitAtMost(d)).Lock(t.Context())
			var e *holdfast.Error
			if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil {
				t.Errorf("WaitAtMost(%v): %v; want ErrHeld and the holder", d, err)
			}
		}
		time.AfterFunc(time.Second, func() { silent.Store(true) })
		if _, err := c.Mutex("x", holdfast.WaitAtMost(3*time.Second)).
			Lock(t.Context()); !errors.Is(err, holdfast.ErrUncertain) {
			t.Errorf("WaitAtMost at a store that fell silent: %v; want ErrUncertain", err)
		}
		if _, err := c.Mutex("x", holdfast.WaitAtMost(20*time.Millisecond)).
			Lock(t.Context()); !errors.Is(err, holdfast.ErrUncertain) {
			t.Errorf("WaitAtMost at a store that has not answered: %v; want ErrUncertain", err)
		}
		release(t, l)
	})
}

// A store that refuses is reported at once. A store that cannot serve is tried for a TTL. In both
// cases the error contains the store's text.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer atomic.Value
		h := &hooks{Backend: memlock.New()}
		h.acquire = func(context.Context, *driver.Request, func() (driver.Reply, error)) (driver.Reply, error) {
			return driver.Reply{}, answer.Load().(error)
		}
		c := client(t, h, nil)
		answer.Store(fmt.Errorf("%w: READONLY the primary is 10.0.0.7", driver.ErrRefused))
		says := func(err, want error) {
			t.Helper()
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "10.0.0.7") {
				t.Errorf("got %v; want %v with the store's words", err, want)
			}
		}
		within(t, "a refusal", 0, 0, func() {
			_, err := c.Mutex("x").Lock(t.Context())
			says(err, holdfast.ErrRefused)
		})
		answer.Store(fmt.Errorf("%w: READONLY the primary is 10.0.0.7", driver.ErrUnavailable))
		within(t, "an outage", ttl, ttl+time.Second, func() {
			_, err := c.Mutex("x").Lock(t.Context())
			says(err, holdfast.ErrUnavailable)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx)
		says(err, context.DeadlineExceeded)
		_, err = c.Mutex("x", holdfast.WaitAtMost(time.Second)).Lock(t.Context())
		says(err, holdfast.ErrUnavailable)
	})
}

// A lease that was not renewed in time has the error of the last renewal.
func TestLossHasItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		defer close(stuck)
		errDown := fmt.Errorf("%w: connection refused", driver.ErrUnavailable)
		for _, c := range []struct {
			name  string
			renew func(ctx context.Context) error
			want  []error
		}{
			{"unreachable", func(context.Context) error { return errDown }, []error{holdfast.ErrUnavailable, errDown}},
			{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []error{holdfast.ErrUncertain}},
			{"hanging", func(context.Context) error { <-stuck; return nil }, []error{holdfast.ErrUncertain}},
		} {
			h := &hooks{Backend: memlock.New()}
			h.renew = func(ctx context.Context, _ []driver.Hold, _ func() ([]driver.Change, error)) ([]driver.Change, error) {
				return nil, c.renew(ctx)
			}
			l := lock(t, client(t, h, nil), "x")
			ctx := l.Context(t.Context())
			within(t, c.name, 9*time.Second, 9*time.Second, func() { <-ctx.Done() })
			for _, err := range []error{l.Err(), context.Cause(ctx), l.Release()} {
				isLost(t, err, holdfast.ReasonUnreachable)
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("%s: %v; want %v, too", c.name, err, want)
					}
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v is a context's error", c.name, err)
				}
			}
		}
		// A lease that was renewed until MaxHold passed has no such error.
		l := lock(t, client(t, memlock.New(), nil), "x", holdfast.MaxHold(time.Minute))
		<-l.Done()
		if err := l.Err(); errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("after MaxHold: %v", err)
		}
	})
}

// ReasonForgotten is for grants that the store has no record of, not for those that were ended.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for missing, reason := range map[bool]holdfast.Reason{true: holdfast.ReasonForgotten, false: holdfast.ReasonEnded} {
			h := &hooks{Backend: memlock.New()}
			h.renew = func(_ context.Context, holds []driver.Hold, _ func() ([]driver.Change, error)) ([]driver.Change, error) {
				var all []driver.Change
				for i := range holds {
					all = append(all, driver.Change{Index: i, State: driver.Gone, Missing: missing})
				}
				return all, nil
			}
			l := lock(t, client(t, h, nil), "x")
			<-l.Done()
			isLost(t, l.Err(), reason)
		}
	})
}

// The log of an outage has a line when it begins, one a minute, and one when it is over.
func TestLogOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var text []string
		c := drivertest.Faulty(memlock.New())
		cl := client(t, c, &holdfast.Config{Logger: logging(func(r slog.Record) {
			mu.Lock()
			defer mu.Unlock()
			text = append(text, fmt.Sprint(r.Message, " ", attr(r, "failures")))
		})})
		heal := c.Cut()
		time.Sleep(10 * time.Minute)
		heal()
		lock(t, cl, "x")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(text) < 9 || len(text) > 13 {
			t.Errorf("%d lines for an outage of 10 minutes: %q", len(text), text)
		}
		if len(text) > 1 && (text[0] != "holdfast: renewal failed; trying again 1" ||
			!strings.HasPrefix(text[len(text)-1], "holdfast: the store answers again ")) {
			t.Errorf("the first and the last line: %q, %q", text[0], text[len(text)-1])
		}
	})
}

// A client whose store is away loses its leases. It then has nothing to renew, so it asks nothing,
// and its log does not say that the store answers. The log says so once the store has given a lock.
func TestLogOfAnOutageWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var text []string
		var away atomic.Bool
		h := &hooks{Backend: memlock.New()}
		type changes = []driver.Change
		h.renew = func(_ context.Context, holds []driver.Hold, next func() (changes, error)) (changes, error) {
			if len(holds) > 0 && away.Load() { // a store asks nothing for no holds
				return nil, driver.ErrUnavailable
			}
			return next()
		}
		c := client(t, h, &holdfast.Config{Logger: logging(func(r slog.Record) {
			mu.Lock()
			defer mu.Unlock()
			text = append(text, fmt.Sprint(r.Message, " ", attr(r, "failures")))
		})})
		lines := func() (all []string) {
			mu.Lock()
			defer mu.Unlock()
			all, text = text, nil
			return all
		}
		lost, again := "holdfast: lease lost ", "holdfast: the store answers again "
		for range 2 { // an outage does not continue an earlier one
			l := lock(t, c, "x")
			away.Store(true)
			<-l.Done()
			time.Sleep(time.Hour)
			got := lines()
			if len(got) != 2 || got[0] != "holdfast: renewal failed; trying again 1" || got[1] != lost {
				t.Errorf("lines while the store is away: %q", got)
			}
			away.Store(false)
			release(t, lock(t, c, "y"))
			time.Sleep(time.Minute)
			if got := lines(); len(got) != 1 || !strings.HasPrefix(got[0], again) {
				t.Errorf("lines after the store has answered: %q", got)
			}
		}
	})
}

// An ErrGone says what is not there: it may never have been.
func TestGoneSaysWhat(t *testing.T) {
	c := client(t, memlock.New(), nil)
	ctx := t.Context()
	_, down := c.Latch("x").CountDown(ctx, "")
	for want, err := range map[string]error{
		`break "x": no longer there: no grant has token 7`:          c.Break(ctx, "x", 7, ""),
		`revoke "x": no longer there: no grant has token 7`:         c.Revoke(ctx, "x", 7, ""),
		`set limit "x": no longer there: no limit is set`:           c.SetLimit(ctx, "x", 0),
		`count down "x": no longer there: there is no such latch`:   down,
		`wait "x": no longer there: there is no such latch`:         c.Latch("x").Wait(ctx),
		`remove latch "x": no longer there: there is no such latch`: c.Latch("x").Remove(ctx),
	} {
		if !errors.Is(err, holdfast.ErrGone) || err.Error() != "holdfast: "+want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// A read that is not answered has no outcome that could be unknown.
func TestUnansweredRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{Backend: memlock.New()}
		cut := fmt.Errorf("%w: the connection is lost", driver.ErrUncertain)
		w.inspect = func(string) error { return cut }
		w.listed = func([]driver.Record) ([]driver.Record, error) { return nil, cut }
		c := client(t, w, nil)
		check := func(err error) {
			t.Helper()
			if !errors.Is(err, holdfast.ErrUncertain) || !strings.HasSuffix(err.Error(), ": not read: the connection is lost") {
				t.Error(err)
			}
		}
		_, err := c.Inspect(t.Context(), "x")
		check(err)
		for _, err := range c.Locks(t.Context(), "") {
			check(err)
		}
		for _, err := range c.Watch(t.Context(), "") {
			check(err)
			break
		}
	})
}

package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// leftover is a store in which a grant at too few servers refuses every request for some time. The others are for the
// store behind it.
type leftover struct {
	hooks
	until time.Time
	hides time.Duration // how much sooner its end seems to be
	fails time.Time     // the store does not answer then, for an outage
	kept  bool
	tries int
}

const outage = 4 * time.Second

// left returns how long the grant seems to last.
func (b *leftover) left() time.Duration { return max(time.Until(b.until)-b.hides, 0) }

func (b *leftover) Inspect(ctx context.Context, name string) (driver.Record, error) {
	left := b.left()
	if left == 0 {
		return b.Backend.Inspect(ctx, name)
	}
	part := []driver.Holder{{ID: "gone", N: 1, Token: 1, Left: left, Partial: true, Kept: b.kept}}
	return driver.Record{Name: name, Kind: driver.Lock, Partial: part, FreeIn: left}, nil
}

func (b *leftover) answer(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (
	driver.Reply, error) {
	b.tries++
	left := time.Until(b.until)
	if since := time.Since(b.fails); since >= 0 && since < outage {
		return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
	}
	if left <= 0 {
		return next()
	}
	h := driver.Holder{ID: "gone", N: 1, Token: 1, Left: b.left(), Partial: true, Kept: b.kept}
	return driver.Reply{Holder: &h, Retry: min(left, time.Second)}, nil
}

// Nobody knows whether a grant at too few servers of a quorum is a run, so OnlyOne tries again, and
// does not say that another has run the job.
func TestOnlyOnePastALeftover(t *testing.T) {
	const ttl = 15 * time.Second
	for what, c := range map[string]struct {
		left, every time.Duration
		kept, taken bool          // the grant in the way is a kept name; another client runs the job
		gives       time.Duration // the caller gives up then, if it is not 0
		hides       time.Duration
		fails       time.Duration // the store does not answer then, unless it is 0
		ran         bool
		err         error
		after       time.Duration
	}{
		"ends": {left: ttl, every: time.Hour, ran: true, after: ttl},
		"kept, perhaps after a run": {left: 50 * time.Minute, every: time.Hour, kept: true, err: holdfast.ErrHeld,
			after: ttl + 5*time.Second},
		"kept for a moment": {left: 3 * time.Second, every: time.Hour, kept: true, ran: true, after: 3 * time.Second},
		"another runs it":   {left: ttl, every: time.Hour, taken: true, after: ttl},
		"for the whole tick": {left: time.Minute, every: 10 * time.Second, err: holdfast.ErrHeld,
			after: 10 * time.Second},
		"ends later than it seems": {left: ttl + 2*time.Second, hides: 2 * time.Second, every: time.Hour, ran: true,
			after: ttl + 2*time.Second},
		"the store fails meanwhile": {left: ttl, hides: ttl, fails: 5 * time.Second, every: time.Hour, ran: true, after: ttl},
		"the store fails at the end": {left: time.Hour, hides: time.Hour, fails: ttl + 3*time.Second,
			every: time.Hour, err: holdfast.ErrUnavailable, after: ttl + 5*time.Second},
		"the caller gives up": {left: ttl, every: time.Hour, gives: 5 * time.Second, err: context.DeadlineExceeded,
			after: 5 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				if c.taken {
					other := client(t, store, nil)
					go func() {
						_, _ = other.OnlyOne(t.Context(), "job", c.every, func(context.Context) error { return nil })
					}()
					synctest.Wait()
				}
				began, ctx := time.Now(), t.Context()
				if c.gives > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.gives)
					defer cancel()
				}
				blocked := &leftover{until: began.Add(c.left), hides: c.hides, kept: c.kept}
				blocked.hooks = hooks{Backend: store, acquire: blocked.answer}
				if c.fails > 0 {
					blocked.fails = began.Add(c.fails)
				}
				one := client(t, blocked, &holdfast.Config{TTL: ttl})
				ran, err := one.OnlyOne(ctx, "job", c.every, func(context.Context) error { return nil })
				took := time.Since(began)
				if ran != c.ran || !errors.Is(err, c.err) || took < c.after || took > c.after+2*time.Second {
					t.Errorf("%v, %v after %v; want %v, %v after %v", ran, err, took, c.ran, c.err, c.after)
				}
				if most := 3 + int(c.hides/time.Second); blocked.tries > most && c.hides < ttl {
					t.Errorf("%d tries; want %d at most: what is known is read", blocked.tries, most)
				}
			})
		})
	}
}

// lossy returns a store whose first answer is lost: it has granted the request. In the second answer it says that the
// request is spent. Then it serves nobody for as long as away, and gets no cancellation for as long as late.
func lossy(store driver.Backend, away, late time.Duration) *hooks {
	asked, begun := 0, time.Now()
	h := &hooks{Backend: store, cancel: lateCancel(late)}
	h.acquire = func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
		asked++
		switch {
		case asked == 1:
			_, err := next()
			return driver.Reply{}, errors.Join(driver.ErrUncertain, err)
		case asked == 2:
			return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
		case time.Since(begun) < away:
			return driver.Reply{}, driver.ErrUnavailable
		}
		return next()
	}
	return h
}

// lateCancel is a hook because of which no cancellation reaches the store for d from now.
func lateCancel(d time.Duration) func(string, func() error) error {
	begun := time.Now()
	return func(_ string, next func() error) error {
		if time.Since(begun) < d {
			return driver.ErrUnavailable
		}
		return next()
	}
}

// A grant whose answer was lost within a TryLock is no run of another, and a TryLock says whose it is. Somebody
// else's run is not mistaken for such a grant.
func TestOnlyOneBesideALostAnswer(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			c := client(t, lossy(store, 100*time.Millisecond, 300*time.Millisecond), nil)
			if taken {
				other := client(t, store, nil)
				if ran, err := other.OnlyOne(t.Context(), "job", time.Hour, nothing); !ran || err != nil {
					t.Fatal(ran, err)
				}
			}
			ran, err := c.OnlyOne(t.Context(), "job", time.Hour, nothing)
			if ran == taken || err != nil {
				t.Errorf("taken by another: %v; ran: %v, %v", taken, ran, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := client(t, lossy(memlock.New(), 100*time.Millisecond, 300*time.Millisecond), nil)
		_, err := c.Mutex("job").TryLock(t.Context())
		var e *holdfast.Error
		if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil || !e.Holder.Abandoned {
			t.Errorf("TryLock: %v", err)
		} else if !strings.Contains(err.Error(), "left by an earlier call of this client") {
			t.Errorf("TryLock says %v", err)
		}
	})
}

func nothing(context.Context) error { return nil }

// A grant that calls of this client have given back is no run, as long as the store has not got that.
func TestOnlyOneBesideGrantsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		other := client(t, store, nil)
		held := lock(t, other, "b")
		c := client(t, &hooks{Backend: store, cancel: lateCancel(time.Second)}, nil)
		for i := range 300 { // some hundreds of names at once
			_, err := holdfast.TryLockAll(t.Context(), c.Mutex(fmt.Sprint("a", i)), c.Mutex("b"))
			if !errors.Is(err, holdfast.ErrHeld) {
				t.Fatal(err)
			}
		}
		// A call that waits gives up, and the store hands the lock to it later.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.Mutex("b").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a0", "a299", "b"} {
			if ran, err := c.OnlyOne(t.Context(), name, time.Hour, nothing); !ran || err != nil {
				t.Errorf("%s: %v, %v", name, ran, err)
			}
		}
		if ran, err := c.OnlyOne(t.Context(), "a0", time.Hour, nothing); ran || err != nil {
			t.Errorf("the second run of a tick: %v, %v", ran, err)
		}
	})
}

// A refusal names a grant that was given back, and arrives after the answer to the cancellation.
func TestOnlyOneAfterALateRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		lock(t, client(t, store, nil), "b")
		slow := time.Duration(0)
		c := client(t, &hooks{
			Backend: store,
			acquire: func(_ context.Context, _ *driver.Request, next func() (driver.Reply, error)) (driver.Reply, error) {
				reply, err := next()
				time.Sleep(slow)
				return reply, err
			},
			cancel: func(_ string, next func() error) error {
				time.Sleep(100 * time.Millisecond)
				return next()
			},
		}, nil)
		if _, err := holdfast.TryLockAll(t.Context(), c.Mutex("a"), c.Mutex("b")); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		slow = time.Second
		if ran, err := c.OnlyOne(t.Context(), "a", time.Hour, nothing); !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
	})
}

// A grant whose answer was lost is cancelled after its lease, so its minimum hold keeps the name. Nobody has run the
// job.
func TestOnlyOneAfterALateCancellation(t *testing.T) {
	const away = ttl + 500*time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		c := client(t, lossy(memlock.New(), away, away), &holdfast.Config{TTL: ttl})
		if ran, err := c.OnlyOne(t.Context(), "job", time.Hour, nothing); ran || err == nil {
			t.Fatal(ran, err)
		}
		time.Sleep(2 * ttl) // the cancellation is answered
		ran, err := c.OnlyOne(t.Context(), "job", time.Hour, nothing)
		var e *holdfast.Error
		if ran || !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || !e.Holder.Kept || !e.Holder.Abandoned {
			t.Errorf("%v, %v", ran, err)
		}
	})
}

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
	driver.Backend
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

func (b *leftover) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &leftoverSession{s, b}, err
}

type leftoverSession struct {
	driver.Session
	b *leftover
}

func (s *leftoverSession) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	s.b.tries++
	left := time.Until(s.b.until)
	if since := time.Since(s.b.fails); since >= 0 && since < outage {
		return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
	}
	if left <= 0 {
		return s.Session.Acquire(ctx, req)
	}
	h := driver.Holder{ID: "gone", N: 1, Token: 1, Left: s.b.left(), Partial: true, Kept: s.b.kept}
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
				blocked := &leftover{Backend: store, until: began.Add(c.left), hides: c.hides, kept: c.kept}
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

// lossy is a store whose first answer is lost: it has granted the request. Then it serves nobody for some time, but
// says in the second answer that the request is spent. It gets no cancellation until then.
type lossy struct {
	driver.Backend
	until time.Time // when it serves again
	grace time.Duration
	asked int
}

func (b *lossy) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &lossySession{s, b}, err
}

type lossySession struct {
	driver.Session
	b *lossy
}

func (s *lossySession) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	s.b.asked++
	switch {
	case s.b.asked == 1:
		_, err := s.Session.Acquire(ctx, req)
		return driver.Reply{}, errors.Join(driver.ErrUncertain, err)
	case s.b.asked == 2:
		return driver.Reply{}, driver.Spent(driver.ErrUnavailable)
	case time.Now().Before(s.b.until.Add(-s.b.grace)):
		return driver.Reply{}, driver.ErrUnavailable
	}
	return s.Session.Acquire(ctx, req)
}

func (s *lossySession) Cancel(ctx context.Context, name, id string) error {
	if time.Now().Before(s.b.until) {
		return driver.ErrUnavailable
	}
	return s.Session.Cancel(ctx, name, id)
}

// A grant whose answer was lost within a TryLock is no run of another, and a TryLock says whose it is. Somebody
// else's run is not mistaken for such a grant.
func TestOnlyOneBesideALostAnswer(t *testing.T) {
	const outage, grace = 300 * time.Millisecond, 200 * time.Millisecond // the cancellation comes later
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			c := client(t, &lossy{Backend: store, until: time.Now().Add(outage), grace: grace}, nil)
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
		c := client(t, &lossy{Backend: memlock.New(), until: time.Now().Add(outage), grace: grace}, nil)
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

// lateCancel is a store that gets no cancellation until then.
type lateCancel struct {
	driver.Backend
	until time.Time
}

func (b *lateCancel) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &lateCancelSession{s, b}, err
}

type lateCancelSession struct {
	driver.Session
	b *lateCancel
}

func (s *lateCancelSession) Cancel(ctx context.Context, name, id string) error {
	if time.Now().Before(s.b.until) {
		return driver.ErrUnavailable
	}
	return s.Session.Cancel(ctx, name, id)
}

// A grant that calls of this client have given back is no run, as long as the store has not got that.
func TestOnlyOneBesideGrantsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		other := client(t, store, nil)
		held := lock(t, other, "b")
		c := client(t, &lateCancel{store, time.Now().Add(time.Second)}, nil)
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

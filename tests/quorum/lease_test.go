package quorum_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestMaxHoldOfADeadHolder: the servers free the name of a holder that they cannot reach any more soon
// after its MaxHold, which is much shorter than the TTL, and not before the lease has ended for it.
func TestMaxHoldOfADeadHolder(t *testing.T) {
	t.Parallel()
	const ttl, hold, soon = time.Minute, 2 * time.Second, 30 * time.Second // soon: also on a busy machine
	g := start(t, 3, time.Minute)
	other := connect(t, g.backend(g.addrs()), &holdfast.Config{TTL: ttl})
	for name, test := range map[string]struct {
		waits  bool // it is granted by a push
		extend time.Duration
		keep   time.Duration // a minimum hold
	}{
		"granted at once":     {},
		"after a wait":        {waits: true},
		"extended":            {extend: 2 * hold},
		"with a minimum hold": {keep: 2 * hold},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways := g.proxies()
			c := connect(t, g.backend(ways.addrs()), &holdfast.Config{TTL: ttl})
			lock := func(c *holdfast.Client, opts ...holdfast.Option) *holdfast.Lease {
				l, err := c.Mutex(name, opts...).Lock(within(t))
				if err != nil {
					t.Error(err)
				}
				return l
			}
			var first *holdfast.Lease
			if test.waits {
				first = lock(other)
			}
			got := make(chan *holdfast.Lease, 1)
			opts := []holdfast.Option{holdfast.MaxHold(hold)}
			if test.keep > 0 {
				opts = append(opts, holdfast.MinHold(test.keep))
			}
			since := time.Now() // not after the grant, from which the servers count
			go func() { got <- lock(c, opts...) }()
			if test.waits {
				inQueue(t, other, name)
				since = time.Now()
				if err := first.Release(); err != nil {
					t.Fatal(err)
				}
			}
			l := <-got
			if l == nil {
				return
			}
			if test.extend > 0 {
				err := l.Extend(test.extend)
				for ctx := within(t); errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil; { // it came too late
					since = time.Now()
					if l = lock(c, opts...); l == nil {
						return
					}
					err = l.Extend(test.extend)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if left := l.Left(); left > max(hold, test.extend) {
				t.Errorf("%v left of a hold of %v", left, hold)
			}
			ways.each((*testenv.TCPProxy).Hole)
			defer ways.each((*testenv.TCPProxy).Heal)
			next := lock(other)
			if next == nil {
				return
			}
			took := time.Since(since)
			if !errors.Is(l.Err(), holdfast.ErrLost) {
				t.Errorf("granted to another client after %v; the holder's lease has not ended: %v", took, l.Err())
			}
			if least := max(hold, test.extend, test.keep) - hold/10; took < least || took > soon {
				t.Errorf("granted to another client after %v; want %v to %v", took, least, soon)
			}
			if err := next.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// inQueue returns when a client waits for the name.
func inQueue(t testing.TB, c *holdfast.Client, name string) {
	t.Helper()
	for ctx := within(t); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if s, err := c.Inspect(ctx, name); err == nil && s.Waiting > 0 {
			return
		}
	}
	t.Fatal("nobody waits")
}

// TestHandOffOfAShortLease: a lease that was handed off or is taken up again does not end with the
// MaxHold of the holder before.
func TestHandOffOfAShortLease(t *testing.T) {
	t.Parallel()
	const ttl, hold = time.Minute, 3 * time.Second
	g := start(t, 3, time.Minute)
	giver := connect(t, g.backend(g.addrs()), &holdfast.Config{TTL: ttl})
	taker := connect(t, g.backend(g.addrs()), &holdfast.Config{TTL: ttl})
	take := func(l *holdfast.Lease, err error) *holdfast.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	// inTime repeats a preparation, with another name each time, that took longer than the lease lasts.
	inTime := func(what string, prepare func(l *holdfast.Lease) error) *holdfast.Lease {
		t.Helper()
		for n := 0; ; n++ {
			l := take(giver.Mutex(fmt.Sprint(what, "-", n), holdfast.MaxHold(hold)).Lock(within(t)))
			err := prepare(l)
			if err == nil {
				return l
			}
			if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrGone) || n == 9 {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	var ticket string
	given := inTime("given", func(l *holdfast.Lease) (err error) {
		ticket, _, err = l.HandOff()
		return err
	})
	var resumed *holdfast.Lease
	short := inTime("resumed", func(l *holdfast.Lease) error {
		text, err := l.Ticket()
		if err == nil {
			resumed, err = taker.Resume(within(t), text)
		}
		return err
	})
	for end := time.Now().Add(2 * hold); time.Now().Before(end); time.Sleep(hold / 10) {
		for _, name := range []string{given.Name(), short.Name()} {
			if l, err := giver.Mutex(name).TryLock(within(t)); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("%s: TryLock: %v, %v; want ErrHeld", name, l, err)
			}
		}
	}
	for want, got := range map[*holdfast.Lease]*holdfast.Lease{
		given: take(taker.Adopt(within(t), ticket)), short: resumed,
	} {
		if got.Token() != want.Token() {
			t.Errorf("token %d; want %d", got.Token(), want.Token())
		}
		if err := got.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
}

// TestLeaseOfARaisedGrant: Raise makes a lease longer, and never shorter. A yielded place lasts as long
// as it was asked for.
func TestLeaseOfARaisedGrant(t *testing.T) {
	t.Parallel()
	const long, short = time.Minute, 5 * time.Second
	g := start(t, 3, 3*time.Minute)
	m := member(t, g, 0)
	s, err := m.Join(within(t), driver.SessionConfig{ID: "s", TTL: long, Info: driver.Info{Host: "h"}.String()},
		redislock.Hooks{Pushed: func(string) {}, Claimed: func(string, int, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(within(t)) }()
	for name, mode := range map[string]driver.Mode{"write": driver.Exclusive, "read": driver.Shared} {
		left := func(of func(driver.Record) []driver.Holder) time.Duration {
			t.Helper()
			r, err := m.Inspect(within(t), name)
			if err != nil || len(of(r)) != 1 {
				t.Fatalf("%+v: %v", r, err)
			}
			return of(r)[0].Left
		}
		holders := func(r driver.Record) []driver.Holder { return r.Holders }
		req := &driver.Request{ID: "s-" + name, Name: name, Mode: mode, N: 1, Wait: true, Lease: short,
			Info: driver.Info{Host: "h"}.String()}
		reply, _, err := s.Ask(within(t), req, 0)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		h := driver.Hold{Name: name, ID: req.ID, Token: reply.Token}
		for _, step := range []struct{ lease, least, most time.Duration }{
			{0, 0, short}, {2 * short, short, 2 * short}, {long, 2 * short, long}, {short, 2 * short, long},
		} {
			if h.Token, _, err = s.Raise(within(t), h, h.Token+1, step.lease); err != nil {
				t.Fatal(err)
			}
			if left := left(holders); left <= step.least || left > step.most {
				t.Errorf("%s: %v left after Raise with a lease of %v; want %v to %v", name, left, step.lease, step.least, step.most)
			}
		}
		// A renewal under an earlier token reports the present one: it may be that of another grant.
		changes, err := s.Renew(within(t), []driver.Hold{{Name: name, ID: req.ID, Token: reply.Token}})
		if err != nil || len(changes) != 1 || changes[0].State != driver.Granted || changes[0].Token != h.Token {
			t.Errorf("%s: Renew with token %d: %+v, %v; want it granted with %d", name, reply.Token, changes, err, h.Token)
		}
		if changes, err = s.Renew(within(t), []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Errorf("%s: Renew with its token: %+v, %v", name, changes, err)
		}
		h.Lease = short
		if _, _, err := s.Yield(within(t), h, "nobody", 0, 1); err != nil {
			t.Fatal(err)
		}
		if left := left(holders); left > short { // its place got the name back
			t.Errorf("%s: %v left of a yielded grant's place; want %v at most", name, left, short)
		}
	}
}

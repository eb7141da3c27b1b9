package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

const setQuarantine = 2 * time.Second

// stepped is three servers, one of them with its own clock, and a holder that reaches that one and
// another.
type stepped struct {
	*group
	ways  proxies
	clock *testenv.Clock
}

func withClock(t *testing.T, quarantine time.Duration) *stepped {
	g := &group{t: t, quarantine: quarantine}
	for range 3 {
		g.servers = append(g.servers, testenv.Redis(t))
	}
	s := &stepped{g, g.proxies(), g.servers[1].OwnClock()}
	if err := g.backend(g.addrs()).Declare(within(t)); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	s.ways[2].Hole()
	return s
}

// TestClockIsSet: a lock is held on two of three servers. The clock of one of them is set, so that
// the lease is over there, or the name is forgotten. No client gets the lock before the lease is
// over: neither a new one, nor an old one, nor a waiter, nor one after the clock is set right
// again. Then the server votes again.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	type step struct{ first, then time.Duration }
	steps := map[string]step{
		"a minute ahead":          {time.Minute, 0},
		"an hour ahead":           {time.Hour, 0},
		"ahead by half the lease": {setQuarantine / 2, 0},
		"ahead and back":          {time.Minute, -time.Minute},
		"back and ahead":          {-time.Minute, time.Minute},
		"a month ahead":           {30 * 24 * time.Hour, 0},
	}
	for i, what := range slices.Sorted(maps.Keys(steps)) {
		for j, who := range []string{"a new client", "an old client", "a waiter"} {
			if !testenv.Deep() && what != "a minute ahead" && i%3 != j { // each step with one of them
				continue
			}
			step := steps[what]
			t.Run(what+", "+who, func(t *testing.T) {
				t.Parallel()
				step := step // a copy: it is changed below
				s := withClock(t, setQuarantine)
				if step.first < 0 { // the lease is granted by the wrong time
					s.clock.Jump(step.first)
				}
				a := open(t, s.backend(s.ways.addrs()), "a", setQuarantine)
				var b driver.Session
				if who != "a new client" {
					b = open(t, s.backend(s.addrs()), "b", setQuarantine)
				}
				var asked time.Time
				var h driver.Hold
				req := try("x", "b")
				for n, waits := 0, false; !waits; n++ {
					if n == 10 {
						t.Fatal("the waiter gets no place")
					}
					asked = time.Now()
					h = get(t, a, try("x", fmt.Sprint("a-", n)))
					req.ID, req.Wait = fmt.Sprint("b-", n), who == "a waiter"
					waits = !req.Wait || s.waits(b, req, asked)
				}
				s.ways.each((*testenv.TCPProxy).Hole)
				if step.first > 0 {
					s.clock.Jump(step.first)
				} else {
					s.clock.Jump(step.then)
				}
				if b == nil {
					b = open(t, s.backend(s.addrs()), "b", setQuarantine)
				}
				back := asked.Add(setQuarantine / 2)
				hold := s.until(b, req, func() {
					if step.then < 0 && time.Now().After(back) {
						s.clock.Jump(step.then)
						step.then = 0
					}
				})
				if d := time.Since(asked); d < setQuarantine { // the TTL is as long
					t.Errorf("a second holder %v after the first, whose lease was of %v", d, setQuarantine)
				}
				if hold.Token <= h.Token {
					t.Errorf("token %d after %d", hold.Token, h.Token)
				}
				s.returns(b, hold)
			})
		}
	}
}

// waits reports whether the request has got a place in the queue. On a busy machine, the lease that was asked
// for at that time may be over before. Then waits cancels the request.
func (s *stepped) waits(b driver.Session, req *driver.Request, asked time.Time) bool {
	s.t.Helper()
	reply, err := b.Acquire(within(s.t), req)
	if err == nil && reply.Wake != nil {
		return true
	}
	if err != nil && !passing(err) || time.Since(asked) < setQuarantine/2 {
		s.t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	_ = b.Cancel(within(s.t), req.Name, req.ID)
	return false
}

// until asks until the lock is granted.
func (s *stepped) until(b driver.Session, req *driver.Request, meanwhile func()) driver.Hold {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		meanwhile()
		ctx, cancel := context.WithTimeout(within(s.t), time.Second)
		reply, err := b.Acquire(ctx, req)
		cancel()
		if err != nil && !passing(err) {
			s.t.Fatalf("Acquire: %v", err)
		}
		if reply.Token != 0 {
			return driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}
		}
		if errors.Is(err, driver.ErrSpent) {
			req.ID += "n"
		}
	}
	s.t.Fatal("no client gets the lock")
	return driver.Hold{}
}

// returns waits until the server whose clock was set has the last hold, too; all are being renewed.
func (s *stepped) returns(b driver.Session, holds ...driver.Hold) {
	s.t.Helper()
	m, last := member(s.t, s.group, 1), len(holds)-1
	for end := time.Now().Add(s.quarantine + 30*time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := m.Inspect(within(s.t), holds[last].Name)
		if err == nil && len(r.Holders) == 1 && r.Holders[0].ID == holds[last].ID {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the server does not come back: %+v, %v", r, err)
		}
		keep(s.t, b, holds)
	}
}

// TestClockIsSetUnderAHolder: the holder of a lock on a majority keeps it while the clock of any
// one server is set again and again, and its release succeeds.
func TestClockIsSetUnderAHolder(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second // nothing expires within the test
	s := withClock(t, ttl)
	a := open(t, s.backend(s.addrs()), "a", ttl)
	for i := range 6 {
		name := fmt.Sprint("x", i)
		h := get(t, a, try(name, "a-"+name))
		s.clock.Jump([]time.Duration{time.Minute, -time.Minute}[i%2])
		for k := range 5 {
			switch changes, err := a.Renew(within(t), []driver.Hold{h}); {
			case err != nil && !passing(err), err == nil && len(changes) > 0 && changes[0].State == driver.Gone:
				t.Fatalf("%s, renewal %d: %+v, %v", name, k, changes, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := a.Release(within(t), h, 0); err != nil && !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%s: Release: %v", name, err)
		}
	}
}

// TestClocksApart: servers whose clocks differ by hours work like others, if the clocks run on.
// Successive processes agree on that.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute // and as long a quarantine, which Declare ends
	g := &group{t: t, quarantine: ttl}
	for i := range 3 {
		g.servers = append(g.servers, testenv.Redis(t))
		g.servers[i].OwnClock().Jump(time.Duration(i) * time.Hour)
	}
	declared := g.backend(g.addrs())
	if err := declared.Declare(within(t)); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for i := range 4 {
		b := quorum.New(at(g.addrs()), &quorum.Config{Quarantine: ttl})
		s := open(t, b, fmt.Sprint("s", i), ttl)
		reply, err := s.Acquire(within(t), try("x", fmt.Sprint("r-", i)))
		if err != nil || reply.Token <= last {
			t.Fatalf("Acquire: %+v, %v after %d", reply, err, last)
		}
		last = reply.Token
		for k := range 3 {
			if _, err := member(t, g, k).Inspect(within(t), "x"); err != nil {
				t.Errorf("server %d has no vote: %v", k, err)
			}
		}
		if err := s.Release(within(t), driver.Hold{Name: "x", ID: fmt.Sprint("r-", i), Token: last}, 0); err != nil {
			t.Fatal(err)
		}
		_ = s.Close(within(t))
		_ = b.Close()
	}
}

// TestPushedByAWrongClock: a server whose clock was set hands a lock over before the lease is over,
// at the request of a client that does not know about the clock. The push is ignored.
func TestPushedByAWrongClock(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := withClock(t, ttl)
	a := open(t, s.backend(s.ways.addrs()), "a", ttl)
	b := open(t, s.backend(s.addrs()), "b", ttl)
	asked := time.Now()
	get(t, a, try("x", "a-1"))
	time.Sleep(ttl / 2) // the place in the queue lasts longer than the lease
	req := try("x", "b-1")
	req.Wait = true
	reply, err := b.Acquire(within(t), req)
	if err != nil || reply.Wake == nil {
		t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	s.ways.each((*testenv.TCPProxy).Hole)
	m := member(t, s.group, 1)
	c, err := m.Join(within(t), driver.SessionConfig{ID: "c", TTL: ttl}, redislock.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(within(t)) }()
	r, err := m.Inspect(within(t), "x")
	if err != nil || len(r.Holders) != 1 || len(r.Waiters) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	s.clock.Jump(r.Holders[0].Left + ttl/8)
	var quarantined *redislock.Newborn // it has been noticed before
	if reply, _, err := c.Ask(within(t), try("x", "c-1"), 0); err == nil && reply.Holder == nil || err != nil &&
		!errors.As(err, &quarantined) {
		t.Fatalf("the server has not handed it over: %+v, %v", reply, err)
	}
	for over := time.After(time.Until(asked.Add(ttl))); ; {
		select {
		case token := <-reply.Wake:
			if token == 0 { // asking again does no harm
				continue
			}
			if d := time.Since(asked); d < ttl { // else the test is late
				t.Fatalf("a second holder %v after the first, whose lease was of %v", d, ttl)
			}
		case <-over:
		}
		break
	}
	s.until(b, req, func() {})
}

// TestClockIsSetForgets: a server whose clock was set forgets its records with wrong times. It
// would keep them for too long, or lose them during the next lease.
func TestClockIsSetForgets(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	s := withClock(t, ttl)
	s.ways[2].Heal()
	s.clock.Jump(30 * 24 * time.Hour)
	a := open(t, s.backend(s.addrs()), "a", ttl)
	var holds []driver.Hold
	for i := range 40 {
		h := get(t, a, try(fmt.Sprint("x", i), fmt.Sprint("a-", i)))
		holds = append(holds, h)
	}
	s.returns(a, holds...) // the clock counts as it is by now
	s.clock.Jump(-30 * 24 * time.Hour)
	for end := time.Now().Add(time.Minute); !strings.HasSuffix(
		s.servers[1].Do(`EVAL "return #redis.call('KEYS', 'hfq:{??}:[lzmi]*')" 0`), ":0"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it still knows keys: %s", s.servers[1].Do("KEYS *"))
		}
		if changes, err := a.Renew(within(t), holds); err != nil && !passing(err) || len(changes) > 0 {
			t.Fatalf("Renew: %+v, %v", changes, err)
		}
	}
	s.returns(a, holds...)
}

package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// open opens a session, which is closed when the test ends.
func open(t testing.TB, b *quorum.Backend, id string, ttl time.Duration) driver.Session {
	t.Helper()
	s := repeat(t, func(ctx context.Context) (driver.Session, error) {
		return b.Open(ctx, driver.SessionConfig{ID: id, TTL: ttl})
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // servers may be gone
	})
	return s
}

func try(name, id string) *driver.Request {
	return &driver.Request{ID: id, Name: name, Mode: driver.Exclusive, N: 1, Info: "{}"}
}

func get(t testing.TB, s driver.Session, r *driver.Request) driver.Hold {
	t.Helper()
	ctx := within(t)
	reply, err := s.Acquire(ctx, r)
	for id, n := r.ID, 0; ctx.Err() == nil && (passing(err) || err == nil && reply.Token == 0 && !r.Wait); n++ {
		// On a busy machine, the answers of a majority may be too late. Then a request is refused, or has ended.
		if err == nil || errors.Is(err, driver.ErrSpent) {
			r.ID = fmt.Sprint(id, "-", n)
		}
		time.Sleep(5 * time.Millisecond)
		reply, err = s.Acquire(ctx, r)
	}
	if err != nil || reply.Token == 0 {
		t.Fatalf("Acquire(%q) = %+v, %v", r.Name, reply, err)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

// TestForgetfulServer is the classic failure of a quorum: a server that forgets its grant makes a
// second majority. Here the server has no vote until the grant has expired, whether it restarted
// with or without its data, or lost its data while running.
func TestForgetfulServer(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(s *testenv.RedisServer){
		"restarted empty": func(s *testenv.RedisServer) { s.Restart(false) },
		"emptied":         func(s *testenv.RedisServer) { s.Do("FLUSHALL") },
		"scripts flushed": func(s *testenv.RedisServer) { s.Do("SCRIPT FLUSH"); s.Do("FLUSHDB") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const quarantine = 1500 * time.Millisecond
			g := start(t, 3, quarantine)
			ways := g.proxies()
			// The holder reaches two of three, and then none.
			ways[2].Hole()
			a := open(t, g.backend(ways.addrs()), "a", quarantine)
			asked := time.Now()
			h := get(t, a, try("x", "a-1"))
			ways.each((*testenv.TCPProxy).Hole)

			b := open(t, g.backend(g.addrs()), "b", quarantine)
			forget(g.servers[1])
			forgot := time.Now()
			var token uint64
			for token == 0 {
				reply, err := b.Acquire(within(t), try("x", "b-1"))
				if err != nil && !passing(err) {
					t.Fatalf("Acquire: %v", err)
				}
				token = reply.Token
				time.Sleep(10 * time.Millisecond)
			}
			if d := time.Since(asked); d < quarantine { // the TTL is as long
				t.Errorf("a second holder %v after the first, whose lease was of %v", d, quarantine)
			}
			if token <= h.Token {
				t.Errorf("token %d after %d", token, h.Token)
			}
			holds := []driver.Hold{{Name: "x", ID: "b-1", Token: token}}
			// The third server and the first make a majority; the second comes back.
			for end := forgot.Add(quarantine + 30*time.Second); ; time.Sleep(20 * time.Millisecond) {
				r, err := member(t, g, 1).Inspect(within(t), "x")
				if err == nil && len(r.Holders) == 1 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the server does not come back: %+v, %v", r, err)
				}
				keep(t, b, holds)
			}
			if d := time.Since(forgot); d < quarantine {
				t.Errorf("the server was back after %v; the quarantine is %v", d, quarantine)
			}
		})
	}
}

// keep renews holds. A hold that expired because the machine stalled is taken again.
func keep(t testing.TB, s driver.Session, holds []driver.Hold) {
	t.Helper()
	changes, err := s.Renew(within(t), holds)
	if err != nil && !passing(err) {
		t.Fatalf("Renew: %v", err)
	}
	for _, c := range changes {
		if h := holds[c.Index]; c.State == driver.Gone {
			t.Logf("taken again: %+v", h)
			holds[c.Index] = get(t, s, try(h.Name, h.ID+"n"))
		}
	}
}

// TestCounters: any minority may lose its counters, again and again. Tokens still grow, although
// the name was forgotten and another minority grants next.
func TestCounters(t *testing.T) {
	t.Parallel()
	const quarantine = 300 * time.Millisecond
	g := start(t, 3, quarantine)
	s := open(t, g.backend(g.addrs()), "a", quarantine)
	last := uint64(0)
	for i := range 12 {
		var h driver.Hold
		for end := time.Now().Add(20 * time.Second); h.Token == 0; time.Sleep(5 * time.Millisecond) {
			// A grant that the server without its data cannot release expires at the others.
			r := try("x", fmt.Sprint("a-", i))
			reply, err := s.Acquire(within(t), r)
			if err != nil && !passing(err) || time.Now().After(end) {
				t.Fatalf("Acquire: %v", err)
			}
			h = driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
		}
		if h.Token <= last {
			t.Fatalf("token %d after %d", h.Token, last)
		}
		last = h.Token
		// On a slow machine the lease has expired by now.
		if err := s.Release(within(t), h, 0); err != nil && !passing(err) && !errors.Is(err, driver.ErrGone) &&
			!errors.Is(err, driver.ErrTaken) {
			t.Fatalf("Release: %v", err)
		}
		if i%3 == 0 {
			g.servers[i/3%3].Do("FLUSHALL")
		}
	}
}

// TestDeclare: a new deployment waits for the quarantine unless it is declared new; a used one
// cannot be declared new.
func TestDeclare(t *testing.T) {
	t.Parallel()
	g := &group{t: t, quarantine: time.Minute}
	for range 3 {
		g.servers = append(g.servers, testenv.Redis(t))
	}
	b := g.backend(g.addrs())
	s := open(t, b, "a", time.Second)
	helps := func(err error) bool {
		return strings.Contains(err.Error(), "declare") && strings.Contains(err.Error(), "holdfast init")
	}
	_, err := s.Acquire(within(t), try("x", "a-1"))
	for n, end := 0, time.Now().Add(20*time.Second); errors.Is(err, driver.ErrUnavailable) && !helps(err) &&
		time.Now().Before(end); n++ { // on a busy machine, the servers are still being compared
		time.Sleep(5 * time.Millisecond)
		_, err = s.Acquire(within(t), try("x", fmt.Sprint("a-1-", n)))
	}
	if !errors.Is(err, driver.ErrUnavailable) || !helps(err) {
		t.Errorf("Acquire on a new quorum: %v; want ErrUnavailable and what to do", err)
	}
	if _, err := b.Inspect(within(t), "x"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Inspect on a new quorum: %v; want ErrUnavailable", err)
	}
	for range 2 {
		if err := b.Declare(within(t)); err != nil {
			t.Fatalf("Declare: %v", err)
		}
	}
	get(t, s, try("x", "a-2"))
	for _, step := range []struct {
		restart int
		want    string
	}{{2, ": only server 3 has no vote, "}, {1, ": only server 2 and server 3 have no vote, "}} {
		g.servers[step.restart].Restart(false)
		if err := b.Declare(within(t)); !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), step.want) {
			t.Errorf("Declare after a restart: %v; want ErrRefused, and %q", err, step.want)
		}
	}
	other := quorum.New(at(g.addrs()), &quorum.Config{Quarantine: 2 * time.Minute})
	t.Cleanup(func() { _ = other.Close() })
	if _, err := other.Open(within(t), driver.SessionConfig{ID: "b", TTL: time.Second}); !errors.Is(err,
		driver.ErrRefused) || !strings.Contains(err.Error(), "1m0s") {
		t.Errorf("Open with another quarantine: %v; want ErrRefused, and which is right", err)
	}
}

// TestMajorityGone: without a majority nothing is granted and nothing hangs. When it is back,
// everything works.
func TestMajorityGone(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(s *testenv.RedisServer, way *testenv.TCPProxy) func(){
		"cut off": func(_ *testenv.RedisServer, way *testenv.TCPProxy) func() { way.Hole(); return way.Heal },
		"frozen":  func(s *testenv.RedisServer, _ *testenv.TCPProxy) func() { s.Pause(); return s.Continue },
		"refusing": func(_ *testenv.RedisServer, way *testenv.TCPProxy) func() {
			way.Refuse()
			return way.Heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, 3, 2*time.Second)
			ways := g.proxies()
			b := g.backend(ways.addrs())
			c := connect(t, b, &holdfast.Config{TTL: time.Second})
			l := repeat(t, func(ctx context.Context) (*holdfast.Lease, error) { return c.Mutex("held").Lock(ctx) })
			var undo []func()
			for i := range 2 {
				undo = append(undo, hurt(g.servers[i], ways[i]))
			}
			begin := time.Now()
			if _, err := c.Mutex("x").TryLock(within(t)); !passing(err) {
				t.Errorf("TryLock without a majority: %v; want ErrUnavailable or ErrUncertain", err)
			}
			if _, err := c.Mutex("x").Lock(within(t)); !passing(err) {
				t.Errorf("Lock without a majority: %v; want ErrUnavailable or ErrUncertain", err)
			}
			if _, err := b.Inspect(within(t), "x"); !passing(err) {
				t.Errorf("Inspect without a majority: %v", err)
			}
			<-l.Done() // it cannot be renewed
			if d := time.Since(begin); d > 45*time.Second {
				t.Errorf("it took %v to notice", d)
			}
			for _, u := range undo {
				u()
			}
			ctx := within(t)
			for {
				l, err := c.Mutex("x").Lock(ctx)
				if err == nil {
					// On a slow machine the lease has expired by now.
					if err := l.Release(); err != nil && !passing(err) && !errors.Is(err, holdfast.ErrLost) {
						t.Error(err)
					}
					break
				}
				if !passing(err) {
					t.Fatalf("Lock with a majority: %v", err)
				}
			}
		})
	}
}

func TestConfig(t *testing.T) {
	five := at([]string{"a:1", "b:1", "c:1", "d:1", "e:1"})
	for what, b := range map[string]*quorum.Backend{
		"two servers":         quorum.New(five[:2], nil),
		"ten servers":         quorum.New(append(five, five...), nil),
		"a server twice":      quorum.New(append(five[:2:2], five[1]), nil),
		"a server unnamed":    quorum.New(append(five[:2:2], quorum.Server{Dial: five[0].Dial}), nil),
		"no way to a server":  quorum.New(append(five[:2:2], quorum.Server{Name: "x"}), nil),
		"a prefix with {":     quorum.New(five, &quorum.Config{Prefix: "{"}),
		"a short quarantine":  quorum.New(five, &quorum.Config{Quarantine: time.Millisecond}),
		"an endless sentence": quorum.New(five, &quorum.Config{Quarantine: 1000 * time.Hour}),
	} {
		_, err := b.Open(within(t), driver.SessionConfig{ID: "a", TTL: time.Second})
		_, err2 := b.Inspect(within(t), "x")
		for _, err := range []error{err, err2, b.Declare(within(t)), b.SetLimit(within(t), "x", 2)} {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v; want ErrInvalid", what, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	b := quorum.New(five, nil)
	if _, err := b.Open(within(t), driver.SessionConfig{ID: "a", TTL: 2 * quorum.DefaultQuarantine}); !errors.Is(err,
		driver.ErrInvalid) || !strings.Contains(err.Error(), "quarantine") {
		t.Errorf("a TTL above the quarantine: %v; want ErrInvalid, and why", err)
	}
}

// TestNothingStays: grants of a minority are given back if there is no majority.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	g := start(t, 5, time.Minute)
	minute := &holdfast.Config{TTL: time.Minute}
	all := connect(t, g.backend(g.addrs()), minute)
	ways := at(g.addrs())
	for i := range ways[:2] {
		ways[i].Dial = func(context.Context) (redislock.Conn, error) { return nil, driver.ErrUnavailable }
	}
	g.servers[2].Kill()
	g.servers[2].Start() // it has no vote now
	b := quorum.New(ways, &quorum.Config{Quarantine: g.quarantine})
	defer func() { _ = b.Close() }()
	few := connect(t, b, minute)
	for what, try := range map[string]func() error{
		"TryLock": func() error { _, err := few.Mutex("x").TryLock(within(t)); return err },
		"Lock": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := few.Mutex("x").Lock(ctx)
			return err
		},
	} {
		if err := try(); !passing(err) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s without a majority: %v", what, err)
		}
		for i, server := range g.servers[3:] {
			m := memberAt(t, g, server.Addr)
			for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // a cancellation may be under way
				r, err := m.Inspect(within(t), "x")
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Holders)+r.Waiting == 0 {
					break
				}
				if time.Since(start) > 20*time.Second { // a third of the TTL
					t.Fatalf("%s: server %d still has %+v", what, i+4, r)
				}
			}
		}
		l, err := all.Mutex("x").TryLock(within(t))
		if err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
}

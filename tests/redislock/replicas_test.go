package redislock_test

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
)

// both runs a test with either client.
func both(t *testing.T, f func(t *testing.T, dial func(testing.TB, string) redislock.Conn)) {
	for name, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": dialGoRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, dial)
		})
	}
}

// A wait that a busy machine does not exceed, and one for confirmations that will not come.
var (
	patient   = &redislock.Config{WaitReplicas: 1, WaitTimeout: 5 * time.Second}
	impatient = &redislock.Config{WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond}
)

// onServer opens a session at a server.
func onServer(t testing.TB, r *testenv.RedisServer, cfg *redislock.Config, ttl time.Duration) (
	driver.Session, *redislock.Backend) {
	t.Helper()
	b := redislock.New(dialRueidis(t, r.Addr), cfg)
	return openSession(t, b, ttl), b
}

// unconfirmed checks the error of a grant that replicas did not confirm.
func unconfirmed(t testing.TB, reply driver.Reply, err error, want string) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain) || reply.Token != 0 {
		t.Fatalf("Acquire: %+v, %v; want ErrUnavailable", reply, err)
	}
	if !errors.Is(err, driver.ErrSpent) {
		t.Errorf("%v; want ErrSpent, too: a renewal under way may still report the grant", err)
	}
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "taken back") {
		t.Fatalf("Acquire: %v; want %q", err, want)
	}
}

func unused(t testing.TB, b *redislock.Backend, name string) {
	t.Helper()
	if rec, err := b.Inspect(within(t, soon), name); err != nil || rec.Kind != driver.Unused {
		t.Fatalf("Inspect: %+v, %v; want unused", rec, err)
	}
}

// Without WaitReplicas a failover may grant twice. The later token is larger. So a resource that
// checks tokens refuses the first holder once it has seen the second.
func TestFailoverGrantsTwice(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	a, _ := onServer(t, set.Primary, nil, long)
	set.Cut(0)
	first := granted(t, a, exclusive("x"))
	set.Primary.Kill()
	set.Promote(0)
	b, _ := onServer(t, set.Replicas[0], nil, long)
	second := granted(t, b, exclusive("x"))
	if second.Token <= first.Token {
		t.Errorf("token %d after %d: the first holder is not fenced", second.Token, first.Token)
	}
}

// With WaitReplicas a grant without confirmation fails. A confirmed grant is known after a
// failover: no other client gets the lock.
func TestFailoverGrantsOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, dial func(testing.TB, string) redislock.Conn) {
		set := testenv.RedisReplicas(t, 2)
		two := &redislock.Config{WaitReplicas: 2, WaitTimeout: 2 * time.Second}
		table := redislock.New(dial(t, set.Primary.Addr), two)
		a := openSession(t, table, long)
		held := eventually(t, a, exclusive("held"))
		name := "lean" // granted at once again and again, it takes the fast path
		for range 4 {
			if err := a.Release(within(t, soon), eventually(t, a, exclusive(name)), 0); err != nil {
				t.Fatal(err)
			}
		}
		set.Cut(0)
		for _, req := range []*driver.Request{
			exclusive(name), exclusive("x"),
			{ID: newID(), Name: "shared", Mode: driver.Shared, N: 1, Wait: true},
			{ID: newID(), Name: "permits", Mode: driver.Permits, N: 2, Limit: 3},
		} {
			reply, err := a.Acquire(within(t, soon), req)
			unconfirmed(t, reply, err, "of 2 replicas confirmed it within 2s") // the other may be slow
			unused(t, table, req.Name)
		}
		set.Primary.Kill()
		set.Promote(1)
		b, _ := onServer(t, set.Replicas[1], nil, long)
		granted(t, b, exclusive("x"))
		refused := exclusive("held")
		refused.Wait = false
		if reply := acquire(t, b, refused); reply.Token != 0 || reply.Holder == nil || reply.Holder.Token != held.Token {
			t.Errorf("after the failover: %+v; want it held with token %d", reply, held.Token)
		}
	})
}

// eventually asks until it is granted: on a busy machine a replica may be slow.
func eventually(t testing.TB, s driver.Session, r *driver.Request) driver.Hold {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		reply, err := s.Acquire(within(t, soon), r)
		if err == nil && reply.Token != 0 {
			return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
		}
		if time.Now().After(end) {
			t.Fatalf("Acquire(%q): %+v, %v", r.Name, reply, err)
		}
	}
}

// A frozen replica keeps what it was sent in its socket, and does not confirm it.
func TestFrozenReplica(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	hasty, table := onServer(t, set.Primary, impatient, long)
	s, _ := onServer(t, set.Primary, patient, long)
	set.Replicas[0].Pause()
	reply, err := hasty.Acquire(within(t, soon), exclusive("x"))
	unconfirmed(t, reply, err, "only 0 of 1 replicas")
	unused(t, table, "x")
	set.Replicas[0].Continue()
	eventually(t, s, exclusive("x"))
}

// Even with min-replicas-to-write, a primary that is cut off goes on granting for a while. With
// WaitReplicas it does not.
func TestMinReplicasToWrite(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	set.Primary.Do("CONFIG SET min-replicas-to-write 1")
	set.Primary.Do("CONFIG SET min-replicas-max-lag 60") // seconds since a replica's last sign of life
	plain, _ := onServer(t, set.Primary, nil, long)
	hasty, _ := onServer(t, set.Primary, impatient, long)
	set.Cut(0)
	set.Promote(0)
	granted(t, plain, exclusive("x"))
	reply, err := hasty.Acquire(within(t, soon), exclusive("y"))
	unconfirmed(t, reply, err, "only 0 of 1 replicas")
}

// A waiter does not receive a grant that replicas do not confirm.
func TestHandOverIsConfirmed(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	a, _ := onServer(t, set.Primary, patient, long)
	b, table := onServer(t, set.Primary, &redislock.Config{WaitReplicas: 1, WaitTimeout: time.Second}, long)
	for _, r := range []*driver.Request{exclusive("x"), {ID: newID(), Name: "s", Mode: driver.Shared, N: 1, Wait: true}} {
		h := granted(t, a, exclusive(r.Name))
		reply := acquire(t, b, r)
		if reply.Token != 0 {
			t.Fatalf("granted twice: %+v", reply)
		}
		set.Cut(0)
		if err := a.Release(within(t, soon), h, 0); err != nil { // a release needs no replica
			t.Fatal(err)
		}
		if token := woken(t, reply); token != 0 {
			t.Fatalf("%s: woken with token %d, which no replica has", r.Name, token)
		}
		reply, err := b.Acquire(within(t, soon), r)
		unconfirmed(t, reply, err, "only 0 of 1 replicas")
		unused(t, table, r.Name)
		set.Join(0)
		eventually(t, b, r)
	}
}

// Nothing counts as proven without confirmation, except that a grant is gone, which is always safe
// to believe. Every request may be repeated.
func TestReplicasConfirmTheRest(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	other, _ := onServer(t, set.Primary, patient, long)
	s, table := onServer(t, set.Primary, &redislock.Config{WaitReplicas: 1, WaitTimeout: time.Second}, long)
	ctx := within(t, time.Minute)
	holds := []driver.Hold{
		eventually(t, s, exclusive("x")), eventually(t, s, exclusive("broken")),
		eventually(t, s, &driver.Request{ID: newID(), Name: "s", Mode: driver.Shared, N: 1}),
	}
	granted(t, other, exclusive("y"))
	place := exclusive("y")
	if reply := acquire(t, s, place); reply.Token != 0 {
		t.Fatal("granted twice")
	}
	holds = append(holds, driver.Hold{Name: "y", ID: place.ID})
	given, write := granted(t, other, exclusive("given")), eventually(t, s, exclusive("w"))
	adopt := newID()
	more := map[string]func() error{
		"Downgrade": func() error { return s.Downgrade(ctx, write) },
		"Adopt":     func() error { return s.Adopt(ctx, given, adopt, "{}") },
		"SetCount":  func() error { _, err := s.SetCount(ctx, "latch", 1); return err },
	}
	set.Cut(0)
	for what, f := range more {
		if err := f(); !errors.Is(err, driver.ErrUncertain) || !strings.Contains(err.Error(), "only 0 of 1 replicas") {
			t.Errorf("%s: %v; want ErrUncertain", what, err)
		}
	}
	set.Join(0)
	for what, f := range more {
		for end := time.Now().Add(time.Minute); f() != nil; {
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, f())
			}
		}
	}
	set.Cut(0)
	if _, err := s.CountDown(ctx, "latch", "one"); !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("CountDown: %v; want ErrUncertain", err)
	}
	if reply, err := s.Await(ctx, "latch", newID()); !errors.Is(err, driver.ErrUncertain) || reply.Token != 0 {
		t.Errorf("Await: %+v, %v; want ErrUncertain", reply, err)
	}
	if err := table.Break(ctx, "broken", holds[1].Token); !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Break: %v; want ErrUncertain", err)
	}
	changes, err := s.Renew(ctx, holds)
	state := map[int]driver.State{}
	for _, c := range changes {
		state[c.Index] = c.State
	}
	want := map[int]driver.State{0: driver.Unknown, 1: driver.Gone, 2: driver.Unknown, 3: driver.Unknown}
	if err != nil || len(changes) != 4 || fmt.Sprint(state) != fmt.Sprint(want) {
		t.Errorf("Renew: %+v, %v; want %v", changes, err, want)
	}
	if changes, err := s.Renew(ctx, holds[:1]); !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Renew of one: %+v, %v; want ErrUncertain", changes, err)
	}
}

// A primary is cut off from its replicas, and one of them is promoted. Holders at the old primary
// stop trusting their leases before the new primary grants the locks. Without WaitReplicas they do
// not.
func TestIsolatedPrimary(t *testing.T) {
	t.Parallel()
	for wait := range 2 {
		t.Run(fmt.Sprintf("WaitReplicas=%d", wait), func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			set := testenv.RedisReplicas(t, 1)
			ctx := within(t, time.Minute)
			client := func(r *testenv.RedisServer, cfg *redislock.Config) *holdfast.Client {
				b := redislock.New(dialRueidis(t, r.Addr), cfg)
				t.Cleanup(func() { _ = b.Close() })
				c, err := holdfast.New(ctx, b, &holdfast.Config{TTL: ttl})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = c.Close(ctx)
				})
				return c
			}
			first, err := client(set.Primary, &redislock.Config{WaitReplicas: wait}).Mutex("x").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			confirm(t, set.Primary) // the replica knows the first lease, but none of its renewals
			set.Cut(0)
			set.Promote(0)
			second, err := client(set.Replicas[0], nil).Mutex("x").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			over := first.Err() != nil
			t.Logf("when the new primary gave the lock away the first lease was over: %v", over)
			if wait > 0 && !over {
				t.Error("the first lease still stood when the new primary gave the lock away")
			}
			if second.Token() <= first.Token() {
				t.Errorf("token %d after %d", second.Token(), first.Token())
			}
		})
	}
}

// Tokens over a failover, when the clock of the new primary is behind or ahead.
func TestTokensOverFailover(t *testing.T) {
	t.Parallel()
	const clock = 1_700_000_000_000_000
	at := func(t *testing.T, r *testenv.RedisServer, cfg *redislock.Config, now int64) driver.Session {
		b := newEdited(dialRueidis(t, r.Addr), cfg, func(_, text string) string {
			return strings.ReplaceAll(text, "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", now/1e6, now%1e6))
		})
		return openSession(t, b, driver.MinTTL)
	}
	for _, c := range []struct {
		what  string
		known bool // the replica knows the last grant
		moved time.Duration
		wait  int
		grows bool
	}{
		{"known, clock behind", true, -time.Hour, 0, true},
		{"unknown, clock ahead", false, time.Second, 0, true},
		{"unknown, clock behind", false, -time.Second, 0, false},
		{"confirmed, clock behind", false, -time.Hour, 1, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			set := testenv.RedisReplicas(t, 1)
			take := func(s driver.Session) (uint64, error) {
				r, err := s.Acquire(within(t, soon), exclusive("x"))
				if err == nil && r.Token == 0 {
					t.Fatalf("held: %+v", r.Holder)
				}
				return r.Token, errors.Join(err, s.Close(within(t, soon)))
			}
			last, err := take(at(t, set.Primary, nil, clock))
			if err != nil {
				t.Fatal(err)
			}
			confirm(t, set.Primary)
			if !c.known {
				set.Cut(0)
			}
			token, err := take(at(t, set.Primary, &redislock.Config{WaitReplicas: c.wait}, clock+5e6))
			if (err == nil) != (c.wait == 0) {
				t.Fatalf("token %d, %v", token, err)
			}
			last = max(last, token) // the largest token that a client received
			if c.known {
				confirm(t, set.Primary)
			}
			set.Primary.Kill()
			set.Promote(0)
			next, err := take(at(t, set.Replicas[0], nil, clock+5e6+c.moved.Microseconds()))
			if grows := next > last; err != nil || grows != c.grows {
				t.Errorf("token %d after %d, %v", next, last, err)
			}
		})
	}
}

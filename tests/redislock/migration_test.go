package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// tagOf returns the hash tag of a name's keys, which is that of its shard.
func tagOf(name string) string {
	return fmt.Sprintf("{%02x}", hook.RedisShard(name))
}

// clusterBackend is a backend as Dial makes it, with the text of the scripts changed by edit.
func clusterBackend(t testing.TB, url string, edit func(string) string) *redislock.Backend {
	t.Helper()
	conn, err := rueidisconn.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	b := newEdited(conn, nil, func(_, text string) string {
		if edit != nil {
			return edit(text)
		}
		return text
	})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestMigrationSteps: while a slot moves with its keys, every request works as usual, or waits
// until the slot has arrived. No request is done by half.
func TestMigrationSteps(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
	for _, moved := range []string{"no key", "all keys", "some keys"} {
		t.Run(moved+" moved", func(t *testing.T) {
			for what, step := range steps {
				t.Run(what, func(t *testing.T) {
					if err := step.run(t, c, moved, nil); err != nil {
						t.Fatalf("while the slot moves: %v", err)
					}
				})
			}
		})
	}
	t.Run("careless scripts", func(t *testing.T) {
		// Without the guard that keeps the keys from vanishing, a script ends halfway.
		const guard = "write('ZADD', KZ, '+inf', '!')\n    write('HSET', KM, '!', '')\n    guarded = true"
		changed := false
		err := steps["break"].run(t, c, "no key", func(text string) string {
			changed = changed || strings.Contains(text, guard)
			return strings.ReplaceAll(text, guard, "")
		})
		if !changed || !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("changed %v, %v; want ErrUncertain", changed, err)
		}
	})
}

// step is one request during a move, with its preparation.
type step struct {
	// prepare returns the request, and a check of its result.
	prepare func(t testing.TB, p *pair, name string) (do func(context.Context) error, check func(testing.TB))
}

// pair are two sessions that meet.
type pair struct {
	a, b driver.Session
	back *redislock.Backend
}

// run makes the request. It returns an error that means that it may have been done by half.
func (s step) run(t testing.TB, c *testenv.RedisClusterServers, moved string, edit func(string) string) error {
	name := newID()
	back := clusterBackend(t, c.URL(""), edit)
	p := &pair{back: back}
	for _, s := range []*driver.Session{&p.a, &p.b} {
		session, err := back.Open(within(t, soon), driver.SessionConfig{ID: newID(), TTL: long, Info: "{}"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close(within(t, soon)) }()
		*s = session
	}
	do, check := s.prepare(t, p, name)
	tag := tagOf(name)
	m := c.Migrate(tag, (c.Owner(tag, 0)+1)%3)
	switch moved {
	case "all keys":
		for m.Move(100) > 0 {
		}
	case "some keys":
		m.MoveKey("hf:" + tag + ":t")
	}
	if moved == "some keys" {
		// The slot arrives while the request is being retried.
		ended := make(chan struct{})
		timer := time.AfterFunc(200*time.Millisecond, func() {
			defer close(ended)
			m.End()
		})
		defer func() {
			if !timer.Stop() {
				<-ended
			}
		}()
	}
	err := do(within(t, soon))
	if moved != "some keys" {
		m.End()
	}
	if err != nil {
		// Refused as a whole: now it must work.
		if !errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		if err := do(within(t, soon)); err != nil {
			t.Fatalf("after the slot has moved: %v", err)
		}
	}
	check(t)
	return nil
}

// one checks that there is one holder, under token.
func (p *pair) one(t testing.TB, name string, token uint64, waiting int) {
	t.Helper()
	rec, err := p.back.Inspect(within(t, soon), name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != token || rec.Waiting != waiting {
		t.Fatalf("Inspect: %+v, %v; want token %d and %d waiting", rec, err, token, waiting)
	}
}

// gets waits until r is granted, and asks again when told to.
func gets(t testing.TB, s driver.Session, r *driver.Request, reply driver.Reply) uint64 {
	t.Helper()
	for reply.Token == 0 {
		retry := reply.Retry
		if retry == 0 {
			retry = soon
		}
		select {
		case token := <-reply.Wake:
			if token != 0 {
				return token
			}
		case <-time.After(retry):
			if reply.Retry == 0 {
				t.Fatalf("not woken in %v", soon)
			}
		}
		until(t, "it is answered", func() bool {
			again, err := s.Acquire(within(t, soon), r)
			if err == nil {
				reply = again
			}
			return err == nil
		})
	}
	return reply.Token
}

var steps = map[string]step{
	"release to a waiter": {func(t testing.TB, p *pair, name string) (func(context.Context) error, func(testing.TB)) {
		h := granted(t, p.a, exclusive(name))
		r := exclusive(name)
		reply := acquire(t, p.b, r)
		return func(ctx context.Context) error { return p.a.Release(ctx, h, 0) }, func(t testing.TB) {
			p.one(t, name, gets(t, p.b, r, reply), 0)
		}
	}},
	"release of a reader to a writer": {func(t testing.TB, p *pair, name string) (func(context.Context) error,
		func(testing.TB)) {
		shared := &driver.Request{ID: newID(), Name: name, Mode: driver.Shared, N: 1}
		h := granted(t, p.a, shared)
		r := exclusive(name)
		reply := acquire(t, p.b, r)
		return func(ctx context.Context) error { return p.a.Release(ctx, h, 0) }, func(t testing.TB) {
			p.one(t, name, gets(t, p.b, r, reply), 0)
		}
	}},
	"break": {func(t testing.TB, p *pair, name string) (func(context.Context) error, func(testing.TB)) {
		h := granted(t, p.a, exclusive(name))
		r := exclusive(name)
		reply := acquire(t, p.b, r)
		return func(ctx context.Context) error { return p.back.Break(ctx, name, h.Token) }, func(t testing.TB) {
			p.one(t, name, gets(t, p.b, r, reply), 0)
		}
	}},
	"cancel of the only waiter": {func(t testing.TB, p *pair, name string) (func(context.Context) error,
		func(testing.TB)) {
		h := granted(t, p.a, exclusive(name))
		r := exclusive(name)
		acquire(t, p.b, r)
		return func(ctx context.Context) error { return p.b.Cancel(ctx, name, r.ID) }, func(t testing.TB) {
			p.one(t, name, h.Token, 0)
		}
	}},
	"cancel of the last reader's grant": {func(t testing.TB, p *pair, name string) (func(context.Context) error,
		func(testing.TB)) {
		shared := &driver.Request{ID: newID(), Name: name, Mode: driver.Shared, N: 1}
		granted(t, p.a, shared)
		return func(ctx context.Context) error { return p.a.Cancel(ctx, name, shared.ID) }, func(t testing.TB) {
			h := granted(t, p.b, exclusive(name))
			p.one(t, name, h.Token, 0)
		}
	}},
	"downgrade": {func(t testing.TB, p *pair, name string) (func(context.Context) error, func(testing.TB)) {
		h := granted(t, p.a, exclusive(name))
		r := &driver.Request{ID: newID(), Name: name, Mode: driver.Shared, N: 1, Wait: true}
		reply := acquire(t, p.b, r)
		return func(ctx context.Context) error { return p.a.Downgrade(ctx, h) }, func(t testing.TB) {
			gets(t, p.b, r, reply)
			if rec, err := p.back.Inspect(within(t, soon), name); err != nil || len(rec.Holders) != 2 {
				t.Fatalf("Inspect: %+v, %v; want two readers", rec, err)
			}
		}
	}},
	"renewal of all kinds": {func(t testing.TB, p *pair, name string) (func(context.Context) error, func(testing.TB)) {
		h := granted(t, p.a, exclusive(name))
		r := exclusive(name)
		acquire(t, p.b, r)
		return func(ctx context.Context) error {
				for s, h := range map[driver.Session]driver.Hold{p.a: h, p.b: {Name: name, ID: r.ID}} {
					changes, err := s.Renew(ctx, []driver.Hold{h})
					if err != nil {
						return err
					}
					for _, ch := range changes {
						if ch.State == driver.Gone || ch.State == driver.Granted {
							return fmt.Errorf("%+v", ch)
						}
					}
				}
				return nil
			}, func(t testing.TB) {
				p.one(t, name, h.Token, 1)
			}
	}},
	"counting a latch down": {func(t testing.TB, p *pair, name string) (func(context.Context) error, func(testing.TB)) {
		ctx := within(t, soon)
		if err := p.a.Release(ctx, granted(t, p.a, exclusive(name)), 0); err != nil { // so that the shard has all its keys
			t.Fatal(err)
		}
		if ok, err := p.a.SetCount(ctx, name, 1); !ok || err != nil {
			t.Fatal(ok, err)
		}
		id := newID()
		reply, err := p.b.Await(ctx, name, id)
		if err != nil || reply.Token != 0 {
			t.Fatal(reply, err)
		}
		return func(ctx context.Context) error {
				_, err := p.a.CountDown(ctx, name, "one")
				return err
			}, func(t testing.TB) {
				if left, err := p.a.CountDown(within(t, soon), name, "one"); left != 0 || err != nil {
					t.Fatal(left, err)
				}
				woken(t, reply)
				if reply, err := p.b.Await(within(t, soon), name, id); err != nil || reply.Token != 1 {
					t.Fatal(reply, err)
				}
			}
	}},
}

// TestMigrationUnderLoad: a slot moves around the Cluster while clients contend for names in it.
// There are never two holders, tokens grow, and every client makes progress.
func TestMigrationUnderLoad(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]dialCluster{"rueidis": clusterRueidis, "go-redis": clusterGoRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule}})
			proxies := testenv.Proxies(t, nil) // it dials directly
			lock := newID()
			backends := make([]*redislock.Backend, 3)
			for i := range backends {
				backends[i] = redislock.New(dial(t, c, proxies), nil)
				t.Cleanup(func() { _ = backends[i].Close() })
			}
			tag := tagOf(lock)
			load := contend(t, backends, lock, alwaysThere)
			for range 6 {
				// During a move clients may have to wait: keys on neither side, such as an empty
				// queue, cannot be created.
				load.moves.Add(1)
				m := c.Migrate(tag, (c.Owner(tag, 0)+1)%3)
				for m.Move(1) > 0 {
				}
				m.End()
				load.moves.Add(1)
				load.goesOn(t, 15)
			}
			load.stop(t)
		})
	}
}

// another returns another name in the same slot.
func another(name string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint(name, i); tagOf(other) == tagOf(name) {
			return other
		}
	}
}

package zklock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

// openSingle opens a session of protocol Single through a proxy of its own.
func openSingle(t *testing.T, server *testenv.ZooKeeperServer, ttl time.Duration) (
	driver.Session, *zklock.Backend, *testenv.TCPProxy) {
	t.Helper()
	proxy := testenv.Proxy(t, server.Addr)
	cfg := on(proxy.Addr)
	cfg.Protocol = zklock.Single
	p := &peer{Backend: backend(t, cfg), t: t}
	var s driver.Session
	must(t, "Open", answered(t, func(ctx context.Context) (err error) {
		s, err = p.Open(ctx, driver.SessionConfig{ID: "s", TTL: ttl})
		return err
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // the test may have made that impossible
	})
	return s, p.Backend, proxy
}

var serial atomic.Int64

func mutexRequest(name string) *driver.Request {
	return &driver.Request{ID: "r-" + strconv.FormatInt(serial.Add(1), 36), Name: name, Mode: driver.Exclusive, N: 1,
		Wait: true, Info: "info"}
}

func mustGet(t *testing.T, s driver.Session, r *driver.Request) driver.Hold {
	t.Helper()
	ctx := within(t)
	reply, err := s.Acquire(ctx, r)
	for transient(err) && ctx.Err() == nil {
		reply, err = s.Acquire(ctx, r)
	}
	if err != nil || reply.Token == 0 {
		t.Fatalf("Acquire(%q) = %+v, %v", r.Name, reply, err)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

// awaitGrant returns the token of a waiter, which asks again when it is told to.
func awaitGrant(t *testing.T, s driver.Session, r *driver.Request, reply driver.Reply) uint64 {
	t.Helper()
	for reply.Token == 0 {
		select {
		case token := <-reply.Wake:
			if token != 0 {
				return token
			}
		case <-time.After(30 * time.Second):
			t.Fatal("not woken")
		}
		var err error
		if reply, err = s.Acquire(within(t), r); err != nil {
			t.Fatal(err)
		}
	}
	return reply.Token
}

// transient reports whether err may come from a connection that is being replaced.
func transient(err error) bool {
	return errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable)
}

// mustRenew is a Renew that must be answered. On a slow machine the session's last proof may be too
// old at first.
func mustRenew(t *testing.T, s driver.Session, h driver.Hold) (changes []driver.Change) {
	t.Helper()
	must(t, "Renew", answered(t, func(ctx context.Context) (err error) {
		changes, err = s.Renew(ctx, []driver.Hold{h})
		return err
	}))
	return changes
}

func TestSingle(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)

	t.Run("one holder", func(t *testing.T) {
		a, _, _ := openSingle(t, server, longTTL)
		b, backend, _ := openSingle(t, server, longTTL)
		h := mustGet(t, a, mutexRequest("x"))
		r := mutexRequest("x")
		reply, err := b.Acquire(within(t), r)
		if err != nil || reply.Token != 0 || reply.Wake == nil || reply.Holder == nil || reply.Holder.Token != h.Token ||
			reply.Holder.Info != "info" {
			t.Fatalf("%+v, %v", reply, err)
		}
		if rec, err := backend.Inspect(within(t), "x"); err != nil || rec.Kind != driver.Lock || rec.Holders[0].ID != h.ID {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := a.Release(within(t), h, 0); err != nil {
			t.Fatal(err)
		}
		token := awaitGrant(t, b, r, reply)
		if token <= h.Token {
			t.Fatalf("token %d after %d", token, h.Token)
		}
		if err := a.Release(within(t), h, 0); !errors.Is(err, driver.ErrTaken) {
			t.Errorf("second release: %v", err)
		}
		hb := driver.Hold{Name: "x", ID: r.ID, Token: token}
		if err := backend.Break(within(t), "x", h.Token); !errors.Is(err, driver.ErrGone) {
			t.Errorf("break with an old token: %v", err)
		}
		if err := backend.Break(within(t), "x", token); err != nil {
			t.Fatal(err)
		}
		ha := mustGet(t, a, mutexRequest("x"))
		// The holder does not know that its grant was broken. Its release must not affect the new
		// grant.
		if err := b.Release(within(t), hb, 0); !errors.Is(err, driver.ErrTaken) {
			t.Errorf("release after a break: %v", err)
		}
		if ch := mustRenew(t, a, ha); len(ch) != 0 {
			t.Errorf("the new holder: %+v", ch)
		}
		if ch := mustRenew(t, b, hb); len(ch) != 1 || ch[0].State != driver.Gone {
			t.Errorf("the old holder: %+v", ch)
		}
		if err := b.Cancel(within(t), "x", hb.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("lost answers", func(t *testing.T) {
		a, _, proxy := openSingle(t, server, longTTL)
		b, backend, _ := openSingle(t, server, longTTL)
		// Creates the folder.
		if err := a.Release(within(t), mustGet(t, a, mutexRequest("y")), 0); err != nil {
			t.Fatal(err)
		}
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		r := mutexRequest("y")
		proxy.DropReplies()
		var rec driver.Record
		until(t, "a try without an answer has the lock", func() bool { // the server may be slower than the caller
			if _, err := a.Acquire(short(), r); !transient(err) {
				t.Fatalf("Acquire without an answer: %v", err)
			}
			var err error
			rec, err = backend.Inspect(within(t), "y")
			return err == nil && len(rec.Holders) == 1
		})
		proxy.Heal()
		h := mustGet(t, a, r)
		if h.Token != rec.Holders[0].Token {
			t.Errorf("token %d; the tries got %d", h.Token, rec.Holders[0].Token)
		}
		proxy.DropReplies()
		open := false
		until(t, "a release without an answer frees the lock", func() bool {
			err := a.Release(short(), h, 0)
			if !transient(err) {
				t.Fatalf("Release without an answer: %v", err)
			}
			open = open || errors.Is(err, driver.ErrUncertain)
			rec, err := backend.Inspect(within(t), "y")
			return err == nil && len(rec.Holders) == 0
		})
		if !open {
			t.Error("a release freed the lock, and none reported that it may have")
		}
		hb := mustGet(t, b, mutexRequest("y"))
		proxy.Heal()
		// The path is the same, but the node belongs to another grant: the repeated release does
		// not find its guard.
		err := a.Release(within(t), h, 0)
		for transient(err) {
			err = a.Release(within(t), h, 0)
		}
		if !errors.Is(err, driver.ErrTaken) {
			t.Errorf("repeated release: %v", err)
		}
		if ch := mustRenew(t, b, hb); len(ch) != 0 {
			t.Errorf("the new holder: %+v", ch)
		}
	})

	t.Run("lapse", func(t *testing.T) {
		const ttl = 5 * time.Second
		a, _, _ := openSingle(t, server, ttl)
		b, _, _ := openSingle(t, server, longTTL)
		asked := time.Now()
		h := mustGet(t, a, mutexRequest("z")) // and not renewed
		time.Sleep(time.Second)
		r := mutexRequest("z")
		var reply driver.Reply
		must(t, "Acquire", answered(t, func(ctx context.Context) (err error) {
			reply, err = b.Acquire(ctx, r)
			return err
		}))
		if token := awaitGrant(t, b, r, reply); token <= h.Token {
			t.Errorf("token %d after %d", token, h.Token)
		}
		if d := time.Since(asked); d < ttl {
			t.Errorf("granted to another after %v; the lease is %v", d, ttl)
		}
		if err := a.Release(within(t), h, 0); !errors.Is(err, driver.ErrTaken) && !errors.Is(err, driver.ErrGone) {
			t.Errorf("release of an expired grant: %v", err)
		}
	})

	t.Run("adopt", func(t *testing.T) {
		a, _, _ := openSingle(t, server, longTTL)
		b, backend, _ := openSingle(t, server, longTTL)
		h := mustGet(t, a, mutexRequest("w"))
		for range 2 {
			if err := b.Adopt(within(t), h, "adopted-1", "theirs"); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Close(within(t)); err != nil {
			t.Fatal(err)
		}
		rec, err := backend.Inspect(within(t), "w")
		if err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != "adopted-1" || rec.Holders[0].Token != h.Token ||
			rec.Holders[0].Info != "theirs" {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := b.Release(within(t), driver.Hold{Name: "w", ID: "adopted-1", Token: h.Token}, 0); err != nil {
			t.Error(err)
		}
		if err := b.Adopt(within(t), h, "adopted-2", ""); !errors.Is(err, driver.ErrGone) {
			t.Errorf("adopt of an ended grant: %v", err)
		}
	})

	t.Run("names", func(t *testing.T) {
		a, backend, _ := openSingle(t, server, longTTL)
		names := []string{"a", "a/b", "/", "//", "a/", "/a", ".", "..", "%", "%2F", "a%2Fb", "é", "🔒", "\x00", "locks"}
		for _, n := range names {
			mustGet(t, a, mutexRequest(n))
		}
		list, err := backend.List(within(t), "", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			got = append(got, r.Name)
		}
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Errorf("listed %q\nwant %q", got, names)
		}
	})

	t.Run("mutexes only", func(t *testing.T) {
		a, backend, _ := openSingle(t, server, longTTL)
		reader, permits, keeps := mutexRequest("m"), mutexRequest("m"), mutexRequest("m")
		reader.Mode = driver.Shared
		permits.Mode, permits.Limit = driver.Permits, 2
		keeps.MinHold = time.Second
		for _, r := range []*driver.Request{reader, permits, keeps} {
			if _, err := a.Acquire(within(t), r); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%+v: %v", r, err)
			}
		}
		_, set := a.SetCount(within(t), "m", 1)
		_, down := a.CountDown(within(t), "m", "1")
		_, await := a.Await(within(t), "m", "1")
		for what, err := range map[string]error{
			"SetCount": set, "CountDown": down, "Await": await, "Downgrade": a.Downgrade(within(t), driver.Hold{}),
			"SetLimit": backend.SetLimit(within(t), "m", 2), "Release": a.Release(within(t), driver.Hold{}, time.Second),
		} {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})

	t.Run("clients", func(t *testing.T) {
		var all sync.WaitGroup
		inside, last := 0, uint64(0) // guarded by the lock alone: the race detector finds overlaps
		for range 6 {
			b, err := zklock.New(zklock.Config{Servers: []string{server.Addr}, Protocol: zklock.Single})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			c, err := holdfast.New(within(t), b, &holdfast.Config{TTL: longTTL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			for range 2 {
				all.Go(func() {
					for range 15 {
						err := c.Mutex("clients").Do(within(t), func(ctx context.Context) error {
							if inside++; inside != 1 {
								t.Errorf("%d inside", inside)
							}
							if token := holdfast.Token(ctx); token <= last {
								t.Errorf("token %d after %d", token, last)
							} else {
								last = token
							}
							inside--
							return nil
						})
						if err != nil {
							t.Errorf("Do: %v", err)
						}
					}
				})
			}
		}
		all.Wait()
	})
}

package zklock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

// singly opens a session of protocol single behind a proxy of its own.
func singly(t *testing.T, server *testenv.ZooKeeperServer) (driver.Session, *zklock.Backend, *testenv.TCPProxy) {
	t.Helper()
	proxy := testenv.Proxy(t, server.Addr)
	b, err := zklock.New(zklock.Config{Servers: []string{proxy.Addr}, Protocol: zklock.Single})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s, err := b.Open(limited(t), driver.SessionConfig{ID: "s" + itoa(serial()), TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s, b, proxy
}

var serialNumber struct {
	sync.Mutex
	n int
}

func serial() int {
	serialNumber.Lock()
	defer serialNumber.Unlock()
	serialNumber.n++
	return serialNumber.n
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mutexRequest(name string) *driver.Request {
	return &driver.Request{ID: "r-" + itoa(serial()), Name: name, Mode: driver.Exclusive, N: 1, Wait: true, Info: "info"}
}

func must(t *testing.T, s driver.Session, r *driver.Request) driver.Hold {
	t.Helper()
	ctx := limited(t)
	reply, err := s.Acquire(ctx, r)
	for passing(err) && ctx.Err() == nil {
		reply, err = s.Acquire(ctx, r)
	}
	if err != nil || reply.Token == 0 {
		t.Fatalf("Acquire(%q) = %+v, %v", r.Name, reply, err)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

// awaken waits for what is pushed.
func awaken(t *testing.T, reply driver.Reply) uint64 {
	t.Helper()
	select {
	case token := <-reply.Wake:
		return token
	case <-time.After(10 * time.Second):
		t.Fatal("not woken")
		return 0
	}
}

// passing reports whether err may be due to a connection that has to be made anew.
func passing(err error) bool {
	return errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrUnavailable)
}

func TestSingle(t *testing.T) {
	server := testenv.ZooKeeper(t)

	t.Run("one holder", func(t *testing.T) {
		a, _, _ := singly(t, server)
		b, backend, _ := singly(t, server)
		h := must(t, a, mutexRequest("x"))
		r := mutexRequest("x")
		reply, err := b.Acquire(limited(t), r)
		if err != nil || reply.Token != 0 || reply.Wake == nil || reply.Holder == nil || reply.Holder.Token != h.Token || reply.Holder.Info != "info" {
			t.Fatalf("%+v, %v", reply, err)
		}
		if rec, err := backend.Inspect(limited(t), "x"); err != nil || rec.Kind != driver.Lock || rec.Holders[0].ID != h.ID {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := a.Release(limited(t), h, 0); err != nil {
			t.Fatal(err)
		}
		token := awaken(t, reply)
		if token <= h.Token {
			t.Fatalf("token %d after %d", token, h.Token)
		}
		if err := a.Release(limited(t), h, 0); !errors.Is(err, driver.ErrTaken) {
			t.Errorf("second release: %v", err)
		}
		hb := driver.Hold{Name: "x", ID: r.ID, Token: token}
		if err := backend.Break(limited(t), "x", h.Token); !errors.Is(err, driver.ErrGone) {
			t.Errorf("break with an old token: %v", err)
		}
		if err := backend.Break(limited(t), "x", token); err != nil {
			t.Fatal(err)
		}
		ha := must(t, a, mutexRequest("x"))
		// The broken holder does not know yet. Its release must not touch the new grant.
		if err := b.Release(limited(t), hb, 0); !errors.Is(err, driver.ErrTaken) {
			t.Errorf("release after a break: %v", err)
		}
		if ch, err := a.Renew(limited(t), []driver.Hold{ha}); err != nil || len(ch) != 0 {
			t.Errorf("the new holder: %+v, %v", ch, err)
		}
		if ch, err := b.Renew(limited(t), []driver.Hold{hb}); err != nil || len(ch) != 1 || ch[0].State != driver.Gone {
			t.Errorf("the old holder: %+v, %v", ch, err)
		}
		if err := b.Cancel(limited(t), "x", hb.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("lost answers", func(t *testing.T) {
		a, _, proxy := singly(t, server)
		b, backend, _ := singly(t, server)
		if err := a.Release(limited(t), must(t, a, mutexRequest("y")), 0); err != nil { // the folder is there
			t.Fatal(err)
		}
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		r := mutexRequest("y")
		proxy.DropReplies()
		if _, err := a.Acquire(short(), r); !errors.Is(err, driver.ErrUncertain) {
			t.Fatalf("%v", err)
		}
		rec, err := backend.Inspect(limited(t), "y")
		if err != nil || len(rec.Holders) != 1 {
			t.Fatalf("%+v, %v", rec, err)
		}
		proxy.Heal()
		h := must(t, a, r)
		if h.Token != rec.Holders[0].Token {
			t.Errorf("token %d; the first try got %d", h.Token, rec.Holders[0].Token)
		}
		proxy.DropReplies()
		if err := a.Release(short(), h, 0); !errors.Is(err, driver.ErrUncertain) {
			t.Fatalf("%v", err)
		}
		hb := must(t, b, mutexRequest("y"))
		proxy.Heal()
		// The same path, and another's node: the repeated release finds its guard gone.
		err = a.Release(limited(t), h, 0)
		for passing(err) {
			err = a.Release(limited(t), h, 0)
		}
		if !errors.Is(err, driver.ErrTaken) {
			t.Errorf("repeated release: %v", err)
		}
		if ch, err := b.Renew(limited(t), []driver.Hold{hb}); err != nil || len(ch) != 0 {
			t.Errorf("the new holder: %+v, %v", ch, err)
		}
	})

	t.Run("lapse", func(t *testing.T) {
		a, _, _ := singly(t, server)
		b, _, _ := singly(t, server)
		h := must(t, a, mutexRequest("z")) // and not renewed
		time.Sleep(time.Second)
		reply, err := b.Acquire(limited(t), mutexRequest("z"))
		if err != nil || reply.Token != 0 {
			t.Fatalf("%+v, %v", reply, err)
		}
		if token := awaken(t, reply); token <= h.Token {
			t.Errorf("token %d after %d", token, h.Token)
		}
		if err := a.Release(limited(t), h, 0); !errors.Is(err, driver.ErrTaken) && !errors.Is(err, driver.ErrGone) {
			t.Errorf("release of what has run out: %v", err)
		}
	})

	t.Run("adopt", func(t *testing.T) {
		a, _, _ := singly(t, server)
		b, backend, _ := singly(t, server)
		h := must(t, a, mutexRequest("w"))
		for range 2 {
			if err := b.Adopt(limited(t), h, "adopted-1", "theirs"); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Close(limited(t)); err != nil {
			t.Fatal(err)
		}
		rec, err := backend.Inspect(limited(t), "w")
		if err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != "adopted-1" || rec.Holders[0].Token != h.Token || rec.Holders[0].Info != "theirs" {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := b.Release(limited(t), driver.Hold{Name: "w", ID: "adopted-1", Token: h.Token}, 0); err != nil {
			t.Error(err)
		}
		if err := b.Adopt(limited(t), h, "adopted-2", ""); !errors.Is(err, driver.ErrGone) {
			t.Errorf("adopt of what is over: %v", err)
		}
	})

	t.Run("names", func(t *testing.T) {
		a, backend, _ := singly(t, server)
		names := []string{"a", "a/b", "/", "//", "a/", "/a", ".", "..", "%", "%2F", "a%2Fb", "é", "🔒", "\x00", "locks"}
		for _, n := range names {
			must(t, a, mutexRequest(n))
		}
		list, err := backend.List(limited(t), "", "", 100)
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
		a, backend, _ := singly(t, server)
		reader, permits, keeps := mutexRequest("m"), mutexRequest("m"), mutexRequest("m")
		reader.Mode = driver.Shared
		permits.Mode, permits.Limit = driver.Permits, 2
		keeps.MinHold = time.Second
		for _, r := range []*driver.Request{reader, permits, keeps} {
			if _, err := a.Acquire(limited(t), r); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%+v: %v", r, err)
			}
		}
		_, set := a.SetCount(limited(t), "m", 1)
		_, down := a.CountDown(limited(t), "m", "1")
		_, await := a.Await(limited(t), "m", "1")
		for what, err := range map[string]error{
			"SetCount": set, "CountDown": down, "Await": await, "Downgrade": a.Downgrade(limited(t), driver.Hold{}),
			"SetLimit": backend.SetLimit(limited(t), "m", 2), "Release": a.Release(limited(t), driver.Hold{}, time.Second),
		} {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})

	t.Run("clients", func(t *testing.T) {
		var all sync.WaitGroup
		inside, last := 0, uint64(0) // guarded by the lock alone; the race detector judges
		for range 6 {
			b, err := zklock.New(zklock.Config{Servers: []string{server.Addr}, Protocol: zklock.Single})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			c, err := holdfast.New(limited(t), b, &holdfast.Config{TTL: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			for range 2 {
				all.Go(func() {
					for range 15 {
						err := c.Mutex("clients").Do(limited(t), func(ctx context.Context) error {
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

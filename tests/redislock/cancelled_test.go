package redislock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestUnwanted: a request that arrives after its cancellation joins the queue. When it gets the
// lock, the session gives it back, and the next waiter gets it. The latest cancellations are known,
// however many came before.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	const ttl = long
	server := testenv.Redis(t)
	holder, _ := session(t, server.URL(), ttl)
	next, _ := session(t, server.URL(), ttl)
	r := exclusive("unwanted")
	h := granted(t, holder, exclusive(r.Name))

	same := driver.SessionConfig{ID: newID(), TTL: ttl, Info: "{}"}
	open := func() (driver.Session, *redislock.Backend) {
		b := redislock.New(dialRueidis(t, server.Addr), nil)
		t.Cleanup(func() { _ = b.Close() })
		s, err := b.Open(within(t, soon), same)
		if err != nil {
			t.Fatal(err)
		}
		return s, b
	}
	s, _ := open()
	hook.RedisCancelMany(s)
	if err := s.Cancel(within(t, soon), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	late, lateBackend := open() // a second connection of the same session, for the late request
	acquire(t, late, r)
	if err := lateBackend.Close(); err != nil {
		t.Fatal(err)
	}
	reply := acquire(t, next, exclusive(r.Name))
	if err := holder.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token <= h.Token {
		t.Errorf("the next waiter received %d; want a token above %d", token, h.Token)
	}
}

// TestCloseCrossesAcquire: after Close nothing is held, though requests were under way on other
// connections.
func TestCloseCrossesAcquire(t *testing.T) {
	t.Parallel()
	const requests = 50
	server := testenv.Redis(t)
	proxy := testenv.Proxy(t, server.Addr)
	_, b := session(t, server.URL(), time.Minute)
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": plainGoRedis(false), "go-redis, obedient": plainGoRedis(true),
	} {
		t.Run(client, func(t *testing.T) {
			for round := range 5 {
				s := openSession(t, redislock.New(dial(t, proxy.Addr), nil), time.Minute)
				proxy.Delay(20 * time.Millisecond)
				name := func(i int) string { return fmt.Sprintf("%s/%d/%d", client, round, i) }
				var all sync.WaitGroup
				for i := range requests {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*3*time.Millisecond)
						defer cancel()
						_, _ = s.Acquire(ctx, exclusive(name(i)))
					})
				}
				time.Sleep(time.Duration(round) * 20 * time.Millisecond)
				if err := s.Close(within(t, soon)); err != nil {
					t.Fatal(err)
				}
				all.Wait()
				proxy.Delay(0)
				for i := range requests {
					record, err := b.Inspect(within(t, soon), name(i))
					if err != nil || record.Kind != driver.Unused {
						t.Errorf("round %d: %s after Close: %+v (%v)", round, name(i), record, err)
					}
				}
			}
		})
	}
}

// TestRefusedWithAPlace: a refusal does not end the place that an earlier exchange about the same
// request has brought. The request still gets the lock by a push, and Close gives the place up. A
// member of a quorum asks without waiting and with, and the server may receive them in either order.
func TestRefusedWithAPlace(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	holder, b := session(t, server.URL(), time.Minute)
	h := granted(t, holder, exclusive("refused"))

	s, _ := session(t, server.URL(), time.Minute)
	r := exclusive(h.Name)
	reply := acquire(t, s, r)
	once := *r
	once.Wait = false
	if got := acquire(t, s, &once); got.Wake != nil || got.Token != 0 {
		t.Fatalf("asked without waiting: %+v", got)
	}
	if err := holder.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token <= h.Token {
		t.Fatalf("the waiter received %d; want a token above %d", token, h.Token)
	}

	other, _ := session(t, server.URL(), time.Minute)
	r = exclusive(h.Name)
	acquire(t, other, r)
	once = *r
	once.Wait = false
	acquire(t, other, &once)
	if err := other.Close(within(t, soon)); err != nil {
		t.Fatal(err)
	}
	rec, err := b.Inspect(within(t, soon), h.Name)
	if err != nil || rec.Waiting != 0 {
		t.Errorf("after Close: %d waiting, %v", rec.Waiting, err)
	}
}

package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestReadOnlyInspect: a server that takes no writes can list holders and waiters, even if a
// lease has expired and the server cannot end it.
func TestReadOnlyInspect(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := testenv.Redis(t)
		looks(t, redislock.New(dialRueidis(t, server.Addr), nil), server)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
		looks(t, redislock.New(anonymousRueidis(t, c, testenv.Proxies(t, nil)), nil), c.Servers...)
	})
}

func looks(t *testing.T, b *redislock.Backend, servers ...*testenv.RedisServer) {
	t.Cleanup(func() { _ = b.Close() })
	s := openSession(t, b, time.Minute)
	const briefly = 3 * time.Second
	brief := openSession(t, b, briefly)
	mutex, readers, latch := newID(), newID(), newID()
	h := granted(t, s, exclusive(mutex))
	if r := acquire(t, s, exclusive(mutex)); r.Token != 0 {
		t.Fatalf("granted next to another: %+v", r)
	}
	for range 2 {
		r := exclusive(readers)
		r.Mode = driver.Shared
		granted(t, s, r)
	}
	if created, err := s.SetCount(within(t, soon), latch, 3); err != nil || !created {
		t.Fatal(created, err)
	}
	short, followed, both := newID(), newID(), newID()
	granted(t, brief, exclusive(short))
	until(t, "a place behind a lease that stands", func() bool { // on a slow machine it may be over
		followed = newID()
		began := time.Now()
		granted(t, brief, exclusive(followed))
		r := exclusive(followed)
		reply := acquire(t, s, r)
		if reply.Token == 0 {
			return true
		}
		if time.Since(began) < briefly {
			t.Fatalf("granted next to another: %+v", reply)
		}
		if err := s.Release(within(t, soon), driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}, 0); err != nil {
			t.Fatal(err)
		}
		return false
	})
	for _, of := range []driver.Session{s, brief} {
		r := exclusive(both)
		r.Mode = driver.Shared
		granted(t, of, r)
	}
	for _, server := range servers {
		server.Do("CONFIG SET min-replicas-to-write 5")
	}
	is := func(name string, kind driver.Kind, holders, waiters int) {
		t.Helper()
		r, err := b.Inspect(within(t, soon), name)
		if err != nil || r.Kind != kind || len(r.Holders) != holders || len(r.Waiters) != waiters || r.Waiting != waiters {
			t.Errorf("%+v, %v; want kind %d, %d holders, %d waiters", r, err, kind, holders, waiters)
		}
	}
	is(mutex, driver.Lock, 1, 1)
	is(readers, driver.Lock, 2, 0)
	is(latch, driver.Latch, 0, 0)
	for stop := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		r, err := b.Inspect(within(t, soon), short)
		if err != nil || time.Now().After(stop) {
			t.Fatalf("a lease that expires: %+v, %v", r, err)
		}
		if r.Kind == driver.Unused {
			break
		}
	}
	until(t, "the other leases of that session have expired as well", func() bool {
		one, err := b.Inspect(within(t, soon), followed)
		two, err2 := b.Inspect(within(t, soon), both)
		return err == nil && err2 == nil && len(one.Holders) == 0 && len(two.Holders) == 1
	})
	is(followed, driver.Lock, 0, 1)
	is(both, driver.Lock, 1, 0)
	list, err := b.List(within(t, soon), "", "", 100)
	if err != nil || len(list) != 5 {
		t.Errorf("listed %d names, %v; want 5", len(list), err)
	}
	for _, server := range servers {
		server.Do("CONFIG SET min-replicas-to-write 0")
	}
	if err := s.Release(within(t, soon), h, 0); err != nil {
		t.Error(err)
	}
}

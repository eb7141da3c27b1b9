package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestRedissonPermitsInJava: permits of a client in Java are listed, are in the way, and can be
// broken.
func TestRedissonPermitsInJava(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	s, b := m.open(nil, long)
	for what, lease := range map[string]time.Duration{"a lease": long, "no lease": 0} {
		name := newID()
		if err := b.SetLimit(t.Context(), name, 1); err != nil {
			t.Fatal(err)
		}
		if !m.permit(name, "0123456789abcdef", lease) {
			t.Fatalf("%s: no permit", what)
		}
		reply := acquire(t, s, permits(name, 1, 1))
		if reply.Token != 0 || reply.Holder == nil || reply.Retry < 0 || reply.Retry > long {
			t.Errorf("%s: Acquire: %+v", what, reply)
		}
		rec, err := b.Inspect(t.Context(), name)
		if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Left < 0 {
			t.Fatalf("%s: Inspect: %+v, %v", what, rec, err)
		}
		if err := b.Break(t.Context(), name, rec.Holders[0].Token); err != nil {
			t.Errorf("%s: Break: %v", what, err)
		}
		if token := woken(t, reply); token == 0 {
			t.Errorf("%s: not handed over", what)
		}
	}
}

// TestRedissonExpiredHolder: when a lease in Go has ended, the next script hands the lock on, though
// Redisson's key lives on for a moment.
func TestRedissonExpiredHolder(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(nil, long)
	b, _ := m.open(nil, long)
	name := newID()
	r := exclusive(name)
	r.Lease = time.Second
	h := granted(t, a, r)
	waiter := exclusive(name)
	acquire(t, b, waiter)
	// The end of the key is rounded up to milliseconds. Here it is later by far.
	m.do("PEXPIRE", name, "60000")
	until(t, "the lease has ended", func() bool {
		again, err := b.Acquire(t.Context(), waiter)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token == 0 && again.Retry > 2*time.Second {
			t.Fatalf("the ended grant is in the way: %+v", again)
		}
		return again.Token > h.Token
	})
}

// TestRedissonSemaphoreEvicted: a semaphore whose key was evicted is created again without the permits
// that are held.
func TestRedissonSemaphoreEvicted(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	granted(t, a, permits(name, 1, 2))
	if !m.permit(name, "0123456789abcdef", long) {
		t.Fatal("no permit")
	}
	m.do("DEL", name)
	waiting := permits(name, 1, 2)
	reply, err := a.Acquire(t.Context(), waiting)
	if err != nil || reply.Token != 0 {
		t.Errorf("Acquire: %+v, %v; want a place", reply, err)
	}
	if m.permit(name, "fedcba9876543210", long) {
		t.Error("two permits of two are held, and another was granted")
	}
	if rec, err := b.Inspect(t.Context(), name); err != nil || rec.Limit != 2 {
		t.Errorf("Inspect: %+v, %v; want limit 2", rec, err)
	}
}

// TestRedissonWaitersWithoutKey: waiters of a semaphore whose key was evicted get permits once those in
// the way have been released.
func TestRedissonWaitersWithoutKey(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	h := granted(t, a, permits(name, 2, 2))
	waiting := permits(name, 1, 2)
	reply := acquire(t, a, waiting)
	m.do("DEL", name)
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	gets(t, a, waiting, reply)
	if !m.permit(name, "0123456789abcdef", long) || m.permit(name, "fedcba9876543210", long) {
		t.Error("one permit should be left")
	}
}

// TestRedissonNegativePermits: the number of permits may fall below zero in Java.
func TestRedissonNegativePermits(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	h := granted(t, a, permits(name, 1, 2))
	m.do("INCRBY", name, "-5")
	for range 2 {
		if rec, err := b.Inspect(t.Context(), name); err != nil || rec.Kind != driver.Semaphore {
			t.Fatalf("Inspect: %+v, %v", rec, err)
		}
		if changes, err := a.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Fatalf("Renew: %+v, %v", changes, err)
		}
	}
	m.do("INCRBY", name, "5")
	if rec, err := b.Inspect(t.Context(), name); err != nil || rec.Limit != 2 || len(rec.Holders) != 1 {
		t.Errorf("Inspect: %+v, %v", rec, err)
	}
}

// TestRedissonNoNumber: a key that is no number damages its name.
func TestRedissonNoNumber(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	m.do("SET", name, "text")
	if _, err := a.Acquire(t.Context(), permits(name, 1, 2)); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("Acquire: %v", err)
	}
	if _, err := a.SetCount(t.Context(), name, 2); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("SetCount: %v", err)
	}
	if err := b.SetLimit(t.Context(), name, 2); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("SetLimit: %v", err)
	}
}

// TestRedissonDeadReaders: readers whose slots have expired are no readers once the last other reader
// has left.
func TestRedissonDeadReaders(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	if !m.read(name) {
		t.Fatal("no read lock")
	}
	h := granted(t, a, reader(name))
	m.do("DEL", "{"+name+"}:"+m.h+":rwlock_timeout:1") // its lease has ended, and nobody renewed it
	if rec, err := b.Inspect(t.Context(), name); err != nil || len(rec.Holders) != 2 ||
		rec.Holders[0].Mode != driver.Shared || rec.Holders[1].Mode != driver.Shared {
		t.Errorf("Inspect: %+v, %v; want two readers", rec, err)
	}
	reply := acquire(t, a, writer(name))
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token == 0 {
		t.Error("the writer was not granted")
	}
}

// TestRedissonTTLOfPermits: the permits of a semaphore that expires expire with it.
func TestRedissonTTLOfPermits(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	m.do("SET", name, "2", "PX", "30000")
	granted(t, a, permits(name, 1, 2))
	if left := m.number("PTTL", "{"+name+"}:timeout"); left < 1 || left > 30_000 {
		t.Errorf("the permits live for %d ms", left)
	}
}

// TestRedissonKeyWithoutEnd: a lock without a TTL, which a script left that failed halfway, ends.
func TestRedissonKeyWithoutEnd(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	m.do("HSET", name, m.h, "1")
	if reply := acquire(t, a, exclusive(name)); reply.Token != 0 || reply.Retry <= 0 {
		t.Errorf("Acquire: %+v", reply)
	}
	if left := m.number("PTTL", name); left < 1 {
		t.Errorf("the key lives for %d ms", left)
	}
}

// TestRedissonCompanions: names that are keys of another name in Redisson are refused.
func TestRedissonCompanions(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(nil, long)
	for _, name := range []string{"{n}:timeout", "redisson_lock_token:{n}", "redisson_unlock_latch:{n}:00", "n{n}:timeout",
		"redisson_lock_queue:{n}", "redisson_lock_timeout:{n}", "{n}:" + m.h + ":rwlock_timeout:1"} {
		if _, err := a.Acquire(t.Context(), exclusive(name)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v; want ErrInvalid", name, err)
		}
	}
	for _, name := range []string{"n:timeout", "redisson_lock", "{n}:timeouts"} {
		if _, err := a.Acquire(t.Context(), exclusive(name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestRedissonCancelHandsOver: a cancelled grant goes to the first waiter in the same script.
func TestRedissonCancelHandsOver(t *testing.T) {
	t.Parallel()
	_, a, _, name := oneName(t)
	r := exclusive(name)
	granted(t, a, r)
	reply := acquire(t, a, reader(name)) // listens on another channel
	if err := a.Cancel(t.Context(), name, r.ID); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token == 0 {
		t.Error("it has to ask")
	}
}

// TestRedissonTold: what is published about permits is true after the script.
func TestRedissonTold(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	h := granted(t, a, permits(name, 1, 1))
	reply := acquire(t, a, permits(name, 1, 1))
	told := hears(t, m, "redisson_sc:{"+name+"}")
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token == 0 {
		t.Error("not handed over")
	}
	m.do("PUBLISH", "redisson_sc:{"+name+"}", "end")
	if first := <-told; first != "end" {
		t.Errorf("%q was published, and no permit is free", first)
	}
}

// hears returns what is published on a channel.
func hears(t testing.TB, m *mixed, channel string) <-chan string {
	t.Helper()
	told := make(chan string, 100)
	conn := dialRueidis(t, m.addr)
	t.Cleanup(func() { _ = conn.Close() })
	stop, err := conn.Subscribe(t.Context(), channel, func(s string) { told <- s }, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return told
}

// TestRedissonCost: what a waiter costs does not grow with the readers of Java.
func TestRedissonCost(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	m.do("HSET", name, "mode", "read", m.h, "100000")
	m.do("PEXPIRE", name, "60000")
	r := writer(name)
	if reply := acquire(t, a, r); reply.Token != 0 || reply.Retry < 30*time.Second {
		t.Errorf("Acquire: %+v", reply)
	}
	if _, err := b.Inspect(within(t, attempt), name); err != nil {
		t.Errorf("Inspect: %v", err)
	}
	if n := m.calls("pttl"); n < 1 || n > 5000 {
		t.Errorf("%d times PTTL", n)
	}
}

// TestRedissonPermitEndsInJava: a waiter in Go asks again when a permit of Java ends, also beside permits in
// Go that end later.
func TestRedissonPermitEndsInJava(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, b := m.open(nil, long)
	const lasts = 2 * time.Second
	var name string
	var r *driver.Request
	var reply driver.Reply
	until(t, "the permit stands when the waiter comes", func() bool { // on a slow machine it may be over
		name = newID()
		granted(t, a, permits(name, 1, 2))
		began := time.Now()
		if !m.permit(name, "0123456789abcdef", lasts) {
			t.Fatal("no permit")
		}
		r = permits(name, 1, 2)
		reply = acquire(t, a, r)
		if took := time.Since(began); reply.Token != 0 && took < lasts {
			t.Fatalf("granted %v after a permit of %v", took, lasts)
		}
		return reply.Token == 0
	})
	if reply.Holder == nil || reply.Retry > lasts || reply.Holder.Left < 10*time.Second {
		t.Fatalf("Acquire: %+v, holder %+v", reply, reply.Holder)
	}
	gets(t, a, r, reply)
	if rec, err := b.Inspect(t.Context(), name); err != nil || len(rec.Holders) != 2 {
		t.Errorf("Inspect: %+v, %v", rec, err)
	}
}

// TestRedissonForeignHash: a hash with the name of a lock may be somebody's data. It stays, and no request
// waits for it.
func TestRedissonForeignHash(t *testing.T) {
	t.Parallel()
	m, a, b, _ := oneName(t)
	for _, data := range [][]string{{"mode", "fast"}, {"color", "red"}, {m.h, "x"}, {"mode", "read", "color", "red"}} {
		name := newID()
		m.do(append([]string{"HSET", name}, data...)...)
		for _, r := range []*driver.Request{exclusive(name),
			{ID: newID(), Name: name, Mode: driver.Shared, N: 1, ReadWrite: true}} {
			if _, err := a.Acquire(t.Context(), r); !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), name) {
				t.Errorf("%v: Acquire: %v; want ErrDamaged with the name of the key", data, err)
			}
			if err := a.Cancel(t.Context(), name, r.ID); err != nil {
				t.Errorf("%v: Cancel: %v", data, err)
			}
		}
		if rec, err := b.Inspect(t.Context(), name); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%v: Inspect: %+v, %v; want ErrDamaged", data, rec, err)
		}
		if n, left := m.number("HLEN", name), m.number("PTTL", name); n != int64(len(data)/2) || left != -1 {
			t.Errorf("%v: %d fields that last for %d ms; want all, without an end", data, n, left)
		}
	}
}

package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestRedissonPlain: the permits of an RSemaphore are counted once, in its key.
func TestRedissonPlain(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, b := m.open(&redisson.Config{PlainSemaphores: true}, long)
	name := newID()
	free := func(want int64) {
		t.Helper()
		if n := m.number("GET", name); n != want {
			t.Errorf("%d permits are free, want %d", n, want)
		}
	}
	h := granted(t, a, permits(name, 2, 5))
	free(3)
	for range 2 {
		if err := a.Reduce(t.Context(), h, 1); err != nil {
			t.Error(err)
		}
		if changes, err := a.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Errorf("Renew: %+v, %v", changes, err)
		}
		free(4)
	}
	m.do("DECRBY", name, "4") // Java takes them
	r := permits(name, 2, 5)
	reply := acquire(t, a, r)
	if reply.Token != 0 {
		t.Error("granted, though Java has the permits")
	}
	m.do("INCRBY", name, "2")
	m.do("PUBLISH", "redisson_sc:{"+name+"}", "2")
	other := driver.Hold{Name: name, ID: r.ID, Token: gets(t, a, r, reply)}
	free(0)
	for _, h := range []driver.Hold{h, other} {
		if err := a.Release(t.Context(), h, 0); err != nil {
			t.Error(err)
		}
	}
	free(3)
	last := granted(t, a, permits(name, 1, 5))
	if err := b.Break(t.Context(), name, last.Token); err != nil {
		t.Error(err)
	}
	free(3)
}

// TestRedissonFairPermits: permits that waiters in Go hand on among themselves are free for Java in
// turn.
func TestRedissonFairPermits(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	told := hears(t, m, "redisson_sc:{"+name+"}")
	h := granted(t, a, permits(name, 1, 1))
	for range 16 { // while nobody takes them, more and more seldom
		r := permits(name, 1, 1)
		reply := acquire(t, a, r)
		if err := a.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		h = driver.Hold{Name: name, ID: r.ID, Token: gets(t, a, r, reply)}
	}
	m.do("PUBLISH", "redisson_sc:{"+name+"}", "99")
	free := 0
	for s := range told {
		if s == "99" {
			break
		}
		free++
	}
	if free < 2 {
		t.Errorf("told %d times of a free permit in 16 releases", free)
	}
}

// TestRedissonFencing: tokens grow over Go and Java.
func TestRedissonFencing(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	for _, fenced := range []bool{true, false} {
		a, _ := m.open(&redisson.Config{Fenced: fenced}, long)
		name := newID()
		token := m.number("INCR", "redisson_lock_token:{"+name+"}")
		for range 3 {
			h := granted(t, a, exclusive(name))
			if int64(h.Token) <= token {
				t.Errorf("fenced %v: token %d after %d", fenced, h.Token, token)
			}
			if err := a.Release(t.Context(), h, 0); err != nil {
				t.Fatal(err)
			}
			if token = m.number("INCR", "redisson_lock_token:{"+name+"}"); token <= int64(h.Token) {
				t.Errorf("fenced %v: token %d of Java after %d", fenced, token, h.Token)
			}
		}
	}
}

// TestRedissonLatches: a latch that Java removes and creates again is another one.
func TestRedissonLatches(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	if ok, err := a.SetCount(t.Context(), name, 2); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if left, err := a.CountDown(t.Context(), name, "one"); left != 1 || err != nil {
		t.Fatal(left, err)
	}
	for range 2 {
		m.do("DEL", name)
		m.do("SET", name, "3")
		for i := range 2 {
			if left, err := a.CountDown(t.Context(), name, "one"); left != 2 || err != nil {
				t.Errorf("count %d: %d are left, %v", i+1, left, err)
			}
		}
		if n := m.number("GET", name); n != 2 {
			t.Errorf("Java has %d", n)
		}
	}
	reply, err := a.Await(t.Context(), name, "a")
	if err != nil || reply.Token != 0 {
		t.Fatal(reply, err)
	}
	m.do("DEL", name)
	m.do("PUBLISH", "redisson_countdownlatch__channel__{"+name+"}", "0")
	woken(t, reply)
	if reply, err := a.Await(t.Context(), name, "a"); err != nil || reply.Token != 1 {
		t.Errorf("Await: %+v, %v", reply, err)
	}
}

// TestRedissonMostPermits: one request cannot keep the server busy for seconds.
func TestRedissonMostPermits(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(nil, long)
	if _, err := a.Acquire(t.Context(), permits(newID(), 1001, 2000)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire: %v; want ErrInvalid", err)
	}
	granted(t, a, permits(newID(), 1000, 2000))
	plain, _ := m.open(&redisson.Config{PlainSemaphores: true}, long)
	granted(t, plain, permits(newID(), 1001, 2000))
}

// TestRedissonUnknownLimit: nobody knows how many permits an RSemaphore has, so its limit is not changed.
func TestRedissonUnknownLimit(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, b := m.open(&redisson.Config{PlainSemaphores: true}, long)
	name := newID()
	m.do("SET", name, "4")
	h := granted(t, a, permits(name, 1, 0))
	if err := b.SetLimit(t.Context(), name, 5); !errors.Is(err, driver.ErrKind) {
		t.Errorf("SetLimit: %v; want ErrKind", err)
	}
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Error(err)
	}
	if n := m.number("GET", name); n != 4 {
		t.Errorf("%d permits; want 4", n)
	}
}

// TestRedissonPlainDeleted: an RSemaphore whose key was deleted while a program in Go had a permit has all
// its permits again when they are given back.
func TestRedissonPlainDeleted(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(&redisson.Config{PlainSemaphores: true}, long)
	name := newID()
	h := granted(t, a, permits(name, 2, 5))
	m.do("DEL", name)
	if err := a.Reduce(t.Context(), h, 1); err != nil {
		t.Fatal(err)
	}
	if n := m.number("GET", name); n != 4 {
		t.Errorf("%d permits; want 4", n)
	}
	m.do("DEL", name)
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	if n := m.number("GET", name); n != 5 {
		t.Errorf("%d permits; want 5", n)
	}
}

// TestRedissonLatchKept: a latch of Java looks like an idle semaphore, so no limit is set of it or removed
// before a request for a permit or a client in Java has said that it is a semaphore.
func TestRedissonLatchKept(t *testing.T) {
	t.Parallel()
	for _, cfg := range []*redisson.Config{nil, {PlainSemaphores: true}} {
		m := newMixed(t)
		a, b := m.open(cfg, long)
		name := newID()
		m.do("SET", name, "3")
		for _, limit := range []int{0, 5} {
			if err := b.SetLimit(t.Context(), name, limit); !errors.Is(err, driver.ErrKind) ||
				!strings.Contains(err.Error(), "latch") {
				t.Errorf("%+v: SetLimit %d: %v; want ErrKind", cfg, limit, err)
			}
			if n := m.number("GET", name); n != 3 {
				t.Fatalf("%+v: %d are left of 3", cfg, n)
			}
		}
		h := granted(t, a, permits(name, 1, 3))
		if err := a.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		if days := m.record(name) / (24 * time.Hour); days < 29 {
			t.Errorf("%+v: in %d days it may be a latch again", cfg, days)
		}
		if err := b.SetLimit(t.Context(), name, 0); err != nil {
			t.Errorf("%+v: SetLimit: %v", cfg, err)
		}
		if n := m.number("EXISTS", name); n != 0 {
			t.Errorf("%+v: the semaphore is not gone", cfg)
		}
	}
}

// TestRedissonSemaphoreInUse: a permit that a client in Java has tells that the name is a semaphore.
func TestRedissonSemaphoreInUse(t *testing.T) {
	t.Parallel()
	m, a, b, name := oneName(t)
	m.do("SET", name, "3")
	if !m.permit(name, "0123456789abcdef", long) {
		t.Fatal("no permit")
	}
	if _, err := a.CountDown(t.Context(), name, "one"); !errors.Is(err, driver.ErrKind) {
		t.Errorf("CountDown: %v; want ErrKind", err)
	}
	if err := b.SetLimit(t.Context(), name, 5); err != nil {
		t.Errorf("SetLimit: %v", err)
	}
	if n := m.number("GET", name); n != 4 {
		t.Errorf("%d permits are free; want 4 of 5", n)
	}
}

// TestRedissonSemaphoreRemoved: the name of a semaphore that Java has removed is free for other kinds.
func TestRedissonSemaphoreRemoved(t *testing.T) {
	t.Parallel()
	m, a, _, name := oneName(t)
	for _, use := range []func() error{
		func() error { return a.Release(t.Context(), granted(t, a, exclusive(name)), 0) },
		func() error {
			_, err := a.SetCount(t.Context(), name, 2)
			return err
		},
	} {
		if err := a.Release(t.Context(), granted(t, a, permits(name, 1, 3)), 0); err != nil {
			t.Fatal(err)
		}
		m.do("DEL", name, "{"+name+"}:timeout")
		if err := use(); err != nil {
			t.Error(err)
		}
	}
}

// record returns how long the record of a name still lives.
func (m *mixed) record(name string) time.Duration {
	m.t.Helper()
	keys, err := m.do("KEYS", "hf:*:l:"+name).AsStrSlice()
	if err != nil || len(keys) != 1 {
		m.t.Fatal(keys, err)
	}
	return time.Duration(m.number("PTTL", keys[0])) * time.Millisecond
}

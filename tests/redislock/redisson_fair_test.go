package redislock_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// TestRedissonFairForced: signs of life of a waiter in Go do not touch a lock that Java took by force.
func TestRedissonFairForced(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	fair := &redisson.Config{Fair: true}
	a, _ := m.open(fair, long)
	b, _ := m.open(fair, long)
	name := newID()
	granted(t, a, exclusive(name))
	w := m.waits(b, name)
	m.do("EVAL", `
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])`, "1", name, m.h, ms(long))
	m.signs(name, func(ask func()) { ask() }, w)
	if m.number("HGET", name, m.h) != 1 || m.number("HLEN", name) != 1 {
		t.Error("Java has lost its lock")
	}
}

// fairWaiter is a waiter in Go for a fair lock.
type fairWaiter struct {
	s     driver.Session
	r     *driver.Request
	reply driver.Reply
}

// waits begins to wait for a fair lock.
func (m *mixed) waits(s driver.Session, name string) *fairWaiter {
	m.t.Helper()
	w := &fairWaiter{s: s, r: exclusive(name)}
	w.ask(m.t)
	return w
}

func (w *fairWaiter) ask(t testing.TB) {
	t.Helper()
	if w.reply = acquire(t, w.s, w.r); w.reply.Token != 0 {
		t.Fatalf("granted next to another: %+v", w.reply)
	}
}

// signs waits until all waiters of a fair lock have given a sign of life or two. On a slow machine places
// may be lost. Then again is called, and has to call ask, with which the waiters ask again.
func (m *mixed) signs(name string, again func(ask func()), all ...*fairWaiter) {
	m.t.Helper()
	before := m.score(name, 0)
	until(m.t, "they have given a sign of life or two", func() bool {
		lost := false
		for _, w := range all {
			select {
			case <-w.reply.Wake:
				lost = true
			default:
			}
		}
		if lost {
			again(func() {
				for _, w := range all {
					w.ask(m.t)
				}
			})
			before = m.score(name, 0)
		}
		return m.number("LLEN", "redisson_lock_queue:{"+name+"}") == int64(len(all)) && before > 0 &&
			m.score(name, 0) > before+600
	})
}

// score returns until when the client at a place of a fair lock's queue is waited for, in milliseconds.
func (j *java) score(name string, at int) int64 {
	j.t.Helper()
	h, err := j.do("LINDEX", "redisson_lock_queue:{"+name+"}", strconv.Itoa(at)).ToString()
	if err != nil {
		return 0
	}
	return j.number("ZSCORE", "redisson_lock_timeout:{"+name+"}", h)
}

// join puts a client in Java at the end of a fair lock's queue, where it is waited for as long as wait.
func (j *java) join(name string, wait time.Duration) {
	j.t.Helper()
	j.do("RPUSH", "redisson_lock_queue:{"+name+"}", j.h)
	j.do("ZADD", "redisson_lock_timeout:{"+name+"}", strconv.FormatInt(time.Now().Add(wait).UnixMilli(), 10), j.h)
}

// leave takes a client in Java out of a fair lock's queue.
func (j *java) leave(name string) {
	j.t.Helper()
	j.do("LREM", "redisson_lock_queue:{"+name+"}", "0", j.h)
	j.do("ZREM", "redisson_lock_timeout:{"+name+"}", j.h)
}

// TestRedissonFairLeaves: a waiter in Go is served when a client in Java before it leaves the queue,
// though nobody announces that.
func TestRedissonFairLeaves(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(&redisson.Config{Fair: true}, long)
	name := newID()
	m.join(name, long)
	r := exclusive(name)
	reply := acquire(t, a, r)
	m.leave(name)
	gets(t, a, r, reply)
}

// TestRedissonFairNextInJava: when the time of a dead client in Java is over, the next one is told that
// the lock is free.
func TestRedissonFairNextInJava(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(&redisson.Config{Fair: true}, long)
	name := newID()
	next := newJava(t, m.client)
	told := hears(t, m, "redisson_lock__channel:{"+name+"}:"+next.h)
	m.join(name, time.Second)
	next.join(name, long)
	acquire(t, a, exclusive(name))
	select {
	case s := <-told:
		if n := m.number("LLEN", "redisson_lock_queue:{"+name+"}"); s != "0" || n != 2 {
			t.Errorf("told %q, and %d wait", s, n)
		}
	case <-time.After(soon):
		t.Error("the next one was not told")
	}
}

// TestRedissonFairSubscriptions: a request for a fair lock has a channel of its own. The subscription ends
// with the request, and not only when the session is idle: there may be a thousand in a second.
func TestRedissonFairSubscriptions(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(&redisson.Config{Fair: true}, long)
	name := newID()
	h := granted(t, a, exclusive(name))
	channels := func() int {
		all, err := m.do("PUBSUB", "CHANNELS", "redisson_*").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for range 20 { // half of them get the lock
		next, cancelled := exclusive(name), exclusive(name)
		reply := acquire(t, a, next)
		acquire(t, a, cancelled)
		if err := a.Cancel(t.Context(), name, cancelled.ID); err != nil {
			t.Fatal(err)
		}
		if err := a.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		h = driver.Hold{Name: name, ID: next.ID, Token: gets(t, a, next, reply)}
	}
	r := exclusive(name)
	reply := acquire(t, a, r)
	until(t, "one request listens", func() bool { return channels() == 1 })
	if err := a.Release(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	gets(t, a, r, reply)
	until(t, "no request listens", func() bool { return channels() == 0 })
}

// TestRedissonFairCost: what the signs of life of many waiters cost grows with their number only.
func TestRedissonFairCost(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(&redisson.Config{Fair: true}, long)
	name := newID()
	granted(t, a, exclusive(name))
	const many = 200
	var all []*fairWaiter
	for range many {
		all = append(all, m.waits(a, name))
	}
	m.do("CONFIG", "RESETSTAT")
	m.signs(name, func(ask func()) {
		ask()
		m.do("CONFIG", "RESETSTAT")
	}, all...)
	if n := m.calls("hget"); n < many || n > many*many/4 {
		t.Errorf("%d times HGET for %d waiters", n, many)
	}
}

// TestRedissonFairFullMemory: waiters keep their places while the server's memory is full.
func TestRedissonFairFullMemory(t *testing.T) {
	t.Parallel()
	m := newMixed(t)
	a, _ := m.open(&redisson.Config{Fair: true}, long)
	name := newID()
	granted(t, a, exclusive(name))
	w := m.waits(a, name)
	m.do("CONFIG", "SET", "maxmemory", "1")
	m.signs(name, func(ask func()) {
		m.do("CONFIG", "SET", "maxmemory", "0")
		ask()
		m.do("CONFIG", "SET", "maxmemory", "1")
	}, w)
}

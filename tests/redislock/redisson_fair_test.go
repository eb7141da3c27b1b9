package redislock_test

import (
	"strconv"
	"testing"

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
	acquire(t, b, exclusive(name))
	m.do("EVAL", `
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])`, "1", name, m.h, ms(long))
	before := m.score(name, 0)
	until(t, "the waiter has given two signs of life", func() bool { return m.score(name, 0) > before+600 })
	if m.number("HGET", name, m.h) != 1 || m.number("HLEN", name) != 1 {
		t.Error("Java has lost its lock")
	}
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

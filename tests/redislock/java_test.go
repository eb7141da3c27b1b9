package redislock_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// java plays a thread of a client in Java: its scripts have the effects of those of Redisson 4.7.
type java struct {
	t      testing.TB
	client rueidis.Client
	h      string        // how Redisson knows the thread
	lease  time.Duration // of what it takes
}

// newJava returns a thread of a client of its own.
func newJava(t testing.TB, client rueidis.Client) *java {
	return &java{t: t, client: client, h: "11111111-2222-3333-4444-555555555555:" + newID(), lease: long}
}

// do sends a command.
func (j *java) do(words ...string) rueidis.RedisResult {
	j.t.Helper()
	r := j.client.Do(context.Background(), j.client.B().Arbitrary(words...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		j.t.Fatalf("%v: %v", words, err)
	}
	return r
}

// number sends a command whose answer is a number, or nothing: -9.
func (j *java) number(words ...string) int64 {
	j.t.Helper()
	n, err := j.do(words...).AsInt64()
	if err != nil {
		return -9
	}
	return n
}

// took reports whether a script that takes something answers with nothing.
func (j *java) took(script, key string, args ...string) bool {
	j.t.Helper()
	return j.number(append([]string{"EVAL", script, "1", key, j.h, ms(j.lease)}, args...)...) == -9
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// lock takes an RLock.
func (j *java) lock(name string) bool {
	j.t.Helper()
	return j.took(`
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])`, name)
}

// unlock releases an RLock that was locked once.
func (j *java) unlock(name string) bool {
	j.t.Helper()
	return j.number("EVAL", `
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('PUBLISH', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0')
return 1`, "1", name, j.h) == 1
}

// read takes the read lock of an RReadWriteLock.
func (j *java) read(name string) bool {
	j.t.Helper()
	return j.took(`
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode and mode ~= 'read' and redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 0 then
  return redis.call('PTTL', KEYS[1])
end
if not mode then redis.call('HSET', KEYS[1], 'mode', 'read') end
local n = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('SET', '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':rwlock_timeout:' .. n, 1, 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))`, name)
}

// write takes the write lock of an RReadWriteLock.
func (j *java) write(name string) bool {
	j.t.Helper()
	return j.took(`
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('PTTL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1] .. ':write', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])`, name)
}

// permit takes a permit of an RPermitExpirableSemaphore. lease 0: it never expires.
func (j *java) permit(name, id string, lease time.Duration) bool {
	j.t.Helper()
	till := "922337203685477"
	if lease > 0 {
		till = strconv.FormatInt(time.Now().Add(lease).UnixMilli(), 10)
	}
	return j.number("EVAL", `
local free = tonumber(redis.call('GET', KEYS[1]) or 0)
if free < 1 then return 0 end
redis.call('DECRBY', KEYS[1], 1)
redis.call('ZADD', '{' .. KEYS[1] .. '}:timeout', ARGV[2], ARGV[1])
return 1`, "1", name, id, till) == 1
}

// reclaim ends the permits that have expired, as a client does whose clock is ahead.
func (j *java) reclaim(name string, ahead time.Duration) {
	j.t.Helper()
	j.do("EVAL", `
local z = '{' .. KEYS[1] .. '}:timeout'
for _, id in ipairs(redis.call('ZRANGEBYSCORE', z, 0, ARGV[1])) do
  redis.call('ZREM', z, id)
  redis.call('INCRBY', KEYS[1], 1)
end`, "1", name, strconv.FormatInt(time.Now().Add(ahead).UnixMilli(), 10))
}

// exists reports whether a key does.
func (j *java) exists(key string) bool {
	j.t.Helper()
	return j.number("EXISTS", key) == 1
}

// calls returns how often the server has run a command.
func (j *java) calls(command string) int {
	j.t.Helper()
	stats, err := j.do("INFO", "commandstats").ToString()
	if err != nil {
		j.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(stats, "cmdstat_"+command+":calls=")
	n, _, _ := strings.Cut(rest, ",")
	calls, _ := strconv.Atoi(n)
	return calls
}

// mixed is a server for Go and Java.
type mixed struct {
	*java
	addr string
}

func newMixed(t testing.TB) *mixed {
	addr := testenv.Redis(t).Addr
	return &mixed{newJava(t, rawClient(t, addr)), addr}
}

// open opens a session in Go.
func (m *mixed) open(cfg *redisson.Config, ttl time.Duration) (driver.Session, *redislock.Backend) {
	b := redisson.New(dialURL(m.t, "redis://"+m.addr), sameRecords(cfg))
	return openSession(m.t, b, ttl), b
}

// oneName returns a server, a session there and a name.
func oneName(t testing.TB) (m *mixed, s driver.Session, b *redislock.Backend, name string) {
	m = newMixed(t)
	s, b = m.open(nil, long)
	return m, s, b, newID()
}

// writer, reader and permits are requests.
func writer(name string) *driver.Request {
	r := exclusive(name)
	r.ReadWrite = true
	return r
}

func reader(name string) *driver.Request {
	return &driver.Request{ID: newID(), Name: name, Mode: driver.Shared, N: 1, ReadWrite: true, Wait: true}
}

func permits(name string, n, limit int) *driver.Request {
	return &driver.Request{ID: newID(), Name: name, Mode: driver.Permits, N: n, Limit: limit, Wait: true}
}

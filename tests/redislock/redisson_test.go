package redislock_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// redissonRule and redissonClusterRule are the rules in the documentation of package redisson.
const (
	redissonRule = "user holdfast on >secret resetkeys ~* resetchannels &hf:* &redisson_* -@all " +
		"+evalsha +eval +publish +pubsub|numsub +subscribe +unsubscribe +hello +ping +select " + redissonCommands
	redissonClusterRule = "user holdfast on >secret resetkeys ~* resetchannels &hf:* &redisson_* -@all " +
		"+evalsha +eval +publish +spublish +pubsub|numsub +pubsub|shardnumsub +subscribe +unsubscribe +ssubscribe +sunsubscribe " +
		"+hello +ping +asking +cluster|slots +cluster|shards +command " + redissonCommands

	redissonCommands = "+get +set +setrange +del +exists +pttl +pexpire +time +type +incrby +decr +scan +lindex +lpop +lpos +lrange +lrem +rpush " +
		"+hget +hset +hdel +hexists +hincrby +hgetall +hlen +hscan " +
		"+zadd +zrem +zcard +zcount +zrank +zscore +zrange +zrangebyscore"
)

// TestConformanceRedisson runs the suite with Redisson's keys beside the record of each name.
func TestConformanceRedisson(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{redissonRule}, "--appendonly", "yes")
	h := harness(server, nil, dialRueidis)
	h.Open = proxied(server.Addr, func(t testing.TB, addr string) driver.Backend {
		return redisson.New(dialURL(t, "redis://holdfast:secret@"+addr), sameRecords(nil))
	})
	drivertest.Run(t, likeRedisson(h))
}

// TestConformanceRedissonFair runs the suite with the queue of an RFairLock.
func TestConformanceRedissonFair(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{redissonRule}, "--appendonly", "yes")
	h := harness(server, connected("arrival order"), dialRueidis)
	h.Waiters = testenv.Rounds(30, 200)
	// A place is lost after 1.8 seconds without a sign of life, and for so long the machine may stand still.
	wait := regexp.MustCompile(`(FENCED, FAIR, PLAIN, WAIT = .*, )\d+`)
	patient := func(_, text string) string { return wait.ReplaceAllString(text, "${1}60000") }
	h.Open = proxied(server.Addr, func(t testing.TB, addr string) driver.Backend {
		return newFormat(dialURL(t, "redis://holdfast:secret@"+addr), &redisson.Config{Fair: true},
			patient)
	})
	drivertest.Run(t, likeRedisson(h))
}

// likeRedisson says in what the format differs from other stores.
func likeRedisson(h drivertest.Harness) drivertest.Harness {
	h.Polled = "what Redisson changes is in none of our keys"
	h.LimitsStay = "a semaphore of Redisson keeps its permits"
	return h
}

// TestConformanceRedissonCluster runs the suite in a Cluster, where all keys of a name have the tag
// that Redisson gives them.
func TestConformanceRedissonCluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{redissonClusterRule},
		Args: []string{"--appendonly", "yes"}})
	tag := func(name string) string { return "{" + name + "}" }
	primary := func(name string) *testenv.RedisServer { return c.Servers[c.Owner("{"+hook.RedisTagLike(name)+"}", 0)] }
	open := func(t testing.TB, p *testenv.TCPProxies) driver.Backend {
		return redisson.New(clusterRueidis(t, c, p), sameRecords(nil))
	}
	b := redisson.New(clusterRueidis(t, c, testenv.Proxies(t, c.Addrs())), sameRecords(nil))
	t.Cleanup(func() { _ = b.Close() })
	restart := taught(t, c, hook.RedisTexts(b))
	h := several(c.Addrs(), open, restart, primary, tag, true, refusalsOf(c.Servers, "oom"))
	if h.Only != nil {
		h.Only = append(h.Only, "arrival order")
	}
	h.Waiters = testenv.Rounds(60, 200) // the name is left to Redisson for the first time before waiter 48
	h.RefusesName = func(name string) bool {
		return strings.ContainsAny(name, "{}") && !regexp.MustCompile(`^[^{]*\{[^}]+\}`).MatchString(name)
	}
	drivertest.Run(t, likeRedisson(h))
}

// sameRecords gives our own records the keys that tests of package redislock know.
func sameRecords(cfg *redisson.Config) *redisson.Config {
	var c redisson.Config
	if cfg != nil {
		c = *cfg
	}
	c.Prefix = "hf:"
	return &c
}

// TestRedissonBesideRedislock: a client with the format and one without it keep records of their own, so
// neither ends the other's grants.
func TestRedissonBesideRedislock(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	a := openSession(t, redisson.New(dialRueidis(t, server.Addr), nil), long)
	b := openSession(t, redislock.New(dialRueidis(t, server.Addr), nil), long)
	r := exclusive("x")
	h := granted(t, b, r)
	granted(t, a, exclusive("x"))
	if changes, err := b.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) > 0 {
		t.Errorf("Renew: %+v, %v", changes, err)
	}
}

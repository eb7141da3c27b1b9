// Package redisson lets programs with Redisson and programs with holdfast contend for the same
// locks: Redisson is the only judge of Redisson's format. See ../README.md.
package redisson

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

const (
	// long is a watchdog's timeout, or TTL, for locks that must not expire.
	long = time.Minute
	// short is one for locks that must expire.
	short = 8 * time.Second
	// limit is how long a test waits for an event that must happen.
	limit = remote.Limit
)

// TestMain runs the tests, or one worker: the test binary is its own worker program.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		remote.Serve(func(name string) func(remote.Command) (string, error) { return (&worker{name: name}).command })
		return
	}
	goleak.VerifyTestMain(testenv.Suite{M: m})
}

// place is a way to deploy Redis, and to use it.
type place struct {
	name string
	// sharded is Redisson's mode of subscription in a Cluster.
	sharded string
	servers func(testing.TB) (addrs []string)
}

var (
	redisServer = testenv.Shared(func(t testing.TB) *testenv.RedisServer { return testenv.Redis(t) })
	// judgeServer has the counters and the logs of contests, and no locks.
	judgeServer  = testenv.Shared(func(t testing.TB) *testenv.RedisServer { return testenv.Redis(t) })
	redisCluster = testenv.Shared(func(t testing.TB) *testenv.RedisClusterServers {
		// No test needs a failover, and a busy machine must not cause one.
		return testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true,
			Args: []string{"--cluster-node-timeout", "15000"}})
	})
)

func ofServer(t testing.TB) []string  { return []string{redisServer(t).Addr} }
func ofCluster(t testing.TB) []string { return redisCluster(t).Addrs() }

var (
	server = place{"server", "default", ofServer}
	// Redisson uses sharded channels in a Cluster, by default.
	cluster = place{"cluster", "default", ofCluster}
	// The channels are the same, but all servers of the Cluster hear of each message.
	unsharded  = place{"unsharded", "OFF", ofCluster}
	everywhere = []place{server, cluster, unsharded}
)

// releases are those of Redisson that the tests use: the newest; at full size also the last of its
// major version, and the oldest that docs/redisson.md supports.
func releases() []string {
	if one := os.Getenv("INTEROP_REDISSON"); one != "" {
		return []string{one}
	}
	if testenv.Deep() {
		return []string{"4.7.0", "3.52.0", "3.24.1"}
	}
	return []string{"4.7.0"}
}

// world is a test's use of a place, with a client that belongs to neither side.
type world struct {
	t        *testing.T
	number   int64 // unique
	place    place
	release  string
	addrs    []string
	observer redis.UniversalClient
	judge    *redis.Client
}

var worlds atomic.Int64

// each runs a test with each release of Redisson in each of some places: at full size everywhere.
func each(t *testing.T, places []place, test func(*world)) {
	t.Helper()
	if testenv.Deep() {
		places = everywhere
	}
	for _, release := range releases() {
		for _, p := range places {
			if p.sharded == "OFF" && release == "3.24.1" {
				continue // it has no such switch
			}
			t.Run(release+"/"+p.name, func(t *testing.T) { test(newWorld(t, release, p)) })
		}
	}
}

func newWorld(t *testing.T, release string, p place) *world {
	t.Helper()
	w := &world{t: t, number: worlds.Add(1), place: p, release: release, addrs: p.servers(t)}
	w.observer = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: w.addrs})
	w.judge = redis.NewClient(&redis.Options{Addr: judgeServer(t).Addr})
	t.Cleanup(func() {
		_ = w.observer.Close()
		_ = w.judge.Close()
	})
	return w
}

// url returns what the actors connect to.
func (w *world) url() string {
	scheme := "redis://"
	if len(w.addrs) > 1 {
		scheme = "redis+cluster://"
	}
	return scheme + strings.Join(w.addrs, ",")
}

// name returns the name of a lock that no other test uses.
func (w *world) name(base string) string { return fmt.Sprint("interop:", w.number, ":", base) }

// left returns how long the key of a lock lives on. A key that has no time to live is a fault.
func (w *world) left(name string) time.Duration {
	w.t.Helper()
	d, err := w.observer.PTTL(w.t.Context(), name).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	if d == -1 {
		w.t.Fatalf("the key %s never expires", name)
	}
	return max(d, 0) // -2: there is no key
}

// waiting waits until n clients wait for a lock: until as many have subscribed, or are in the queue.
func (w *world) waiting(kind, name string, n int) {
	w.t.Helper()
	var seen int64
	if !eventually(func() bool { seen = w.waiters(kind, name); return seen >= int64(n) }) {
		w.t.Fatalf("%d clients wait for the %s %s, want %d", seen, kind, name, n)
	}
}

func (w *world) waiters(kind, name string) int64 {
	w.t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	switch kind {
	case "fair":
		n, err := w.observer.LLen(w.t.Context(), "redisson_lock_queue:{"+name+"}").Result()
		if err != nil {
			w.t.Fatal(err)
		}
		return n
	case "read", "write":
		channel = "redisson_rwlock:{" + name + "}"
	case "semaphore", "permit":
		channel = "redisson_sc:{" + name + "}"
	case "latch":
		channel = "redisson_countdownlatch__channel__{" + name + "}"
	}
	return max(w.subscribers(channel))
}

// subscribers returns how many clients have subscribed to a channel, and to the sharded one of this
// name, in all servers.
func (w *world) subscribers(channel string) (plain, sharded int64) {
	w.t.Helper()
	var p, s atomic.Int64
	count := func(ctx context.Context, c *redis.Client) error {
		all, err := c.PubSubNumSub(ctx, channel).Result()
		if err != nil {
			return err
		}
		p.Add(all[channel])
		all, err = c.PubSubShardNumSub(ctx, channel).Result()
		s.Add(all[channel])
		return err
	}
	var err error
	switch c := w.observer.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(w.t.Context(), count)
	case *redis.Client:
		err = count(w.t.Context(), c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Load(), s.Load()
}

// eventually waits for what, and reports whether it became true in time.
func eventually(what func() bool) bool { return comes(what, limit) }

// comes reports whether what becomes true in time.
func comes(what func() bool, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if what() {
			return true
		}
	}
	return false
}

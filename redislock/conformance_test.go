package redislock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// aclRule is the rule that the package's documentation gives.
const aclRule = "user holdfast on >secret resetkeys ~hf:* resetchannels &hf:s:* -@all " +
	"+evalsha +eval +publish +pubsub|numsub +subscribe +unsubscribe +hello +ping +select " +
	"+get +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby " +
	"+zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex"

const ttl = 2 * time.Second // longer than a busy machine stands still for

// TestConformance runs the suite with both clients, with one of them as a user with no more than the documented rights.
func TestConformance(t *testing.T) {
	t.Parallel()
	together(t, map[string]func(*testing.T){
		"rueidis": func(t *testing.T) {
			server := testenv.RedisACL(t, []string{aclRule}, "--appendonly", "yes")
			conform(t, server, func(t testing.TB, addr string) redislock.Conn {
				return must(rueidisconn.Dial("redis://holdfast:secret@" + addr))(t)
			})
		},
		"go-redis": func(t *testing.T) {
			conform(t, testenv.Redis(t, "--appendonly", "yes"), dialGoRedis)
		},
	})
}

// together runs tests that wait most of the time side by side, however few processors there are.
func together(t *testing.T, tests map[string]func(*testing.T)) {
	var all sync.WaitGroup
	for name, test := range tests {
		all.Go(func() { t.Run(name, test) })
	}
	all.Wait()
}

func must(c redislock.Conn, err error) func(testing.TB) redislock.Conn {
	return func(t testing.TB) redislock.Conn {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func dialRueidis(t testing.TB, addr string) redislock.Conn {
	t.Helper()
	return must(rueidisconn.Dial("redis://" + addr))(t)
}

func dialGoRedis(t testing.TB, addr string) redislock.Conn {
	client := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Second, ReadTimeout: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	return goredisconn.New(client)
}

// rawClient is a rueidis client as Dial makes it.
func rawClient(t testing.TB, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func conform(t *testing.T, server *testenv.RedisServer, dial func(testing.TB, string) redislock.Conn) {
	drivertest.Run(t, drivertest.Harness{
		TTL:    ttl,
		Refuse: refusals(func() *testenv.RedisServer { return server }),
		Damage: damages(func(string) *testenv.RedisServer { return server }),
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			proxy := testenv.Proxy(t, server.Addr)
			b := redislock.New(dial(t, proxy.Addr), nil)
			t.Cleanup(func() { _ = b.Close() })
			return drivertest.Conn{
				Backend:     b,
				Kill:        proxy.Refuse,
				Cut:         func() func() { proxy.Hole(); return proxy.Heal },
				DropReplies: func() func() { proxy.DropReplies(); return proxy.Heal },
				Hold:        proxy.Hold,
				Forget:      proxy.Forget,
			}
		},
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
	})
}

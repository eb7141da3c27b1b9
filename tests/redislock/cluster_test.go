package redislock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// clusterRule is the rule for a Cluster in the package's documentation.
const clusterRule = "user holdfast on >secret resetkeys ~hf:* resetchannels &hf:{*}:s:* -@all " +
	"+evalsha +eval +spublish +pubsub|shardnumsub +ssubscribe +sunsubscribe +hello +ping +asking +cluster|slots +cluster|shards +command " +
	"+get +set +setrange +del +exists +pttl +pexpire +time +hget +hset +hdel +hexists +hincrby " +
	"+zadd +zrem +zcard +zcount +zrank +zrange +zrangebyscore +zrandmember +zrangebylex"

// sentinelRule is the rule for servers behind sentinels, and watcherRule the one for the sentinels.
const (
	sentinelRule = aclRule + " +role"
	watcherRule  = "user watcher on >watch resetchannels &* -@all +hello +ping +subscribe +unsubscribe +punsubscribe " +
		"+sentinel|get-master-addr-by-name +sentinel|sentinels"
)

// tracks are the permissions with which watchers hear of changes at once; rueidis needs the first.
const tracks = " +client|tracking +client|id &__redis__:invalidate"

// TestConformanceCluster runs a part of the suite in a Cluster, with both clients, as a user with only
// the documented permissions.
func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule + " +client|tracking"},
		Args: []string{"--appendonly", "yes"}})
	restart := taught(t, c, slices.Collect(maps.Values(hook.RedisScripts()["cluster"])))
	primary := func(name string) *testenv.RedisServer { return c.Servers[c.Owner(tagOf(name), 0)] }
	for name, dial := range map[string]dialCluster{"rueidis": clusterRueidis, "go-redis": clusterGoRedis} {
		t.Run(name, func(t *testing.T) {
			h := several(c.Addrs(), func(t testing.TB, p *testenv.TCPProxies) driver.Backend {
				return redislock.New(dial(t, c, p), nil)
			}, restart, primary, tagOf, true, refusalsOf(c.Servers, "oom"))
			if name == "go-redis" {
				h.Polled = "it does not track a Cluster"
			}
			drivertest.Run(t, h)
		})
	}
}

// TestConformanceSentinel runs a part of the suite at the primary behind sentinels. Scripts, keys and
// channels are those of a single server, where every check runs with rueidis.
func TestConformanceSentinel(t *testing.T) {
	t.Parallel()
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{
		Users: []string{sentinelRule + tracks}, SentinelUsers: []string{watcherRule},
		Args: []string{"--appendonly", "yes"},
	})
	restart := func(testing.TB) { s.Servers[0].Restart(true) }
	primary := func(string) *testenv.RedisServer { return s.Servers[0] }
	for name, dial := range map[string]dialSentinel{"rueidis": sentinelRueidis, "go-redis": sentinelGoRedis} {
		t.Run(name, func(t *testing.T) {
			h := several(s.Addrs(), func(t testing.TB, p *testenv.TCPProxies) driver.Backend {
				return redislock.New(dial(t, s, p), nil)
			}, restart, primary, tagOf, false, refusalsOf(s.Servers[:1], "noreplicas", "oom"))
			h.Only = reconnected()
			drivertest.Run(t, h)
		})
	}
}

// holdAll calls Hold of every proxy.
func holdAll(p *testenv.TCPProxies) (deliver func()) {
	var all []func()
	p.Each(func(p *testenv.TCPProxy) { all = append(all, p.Hold()) })
	return func() {
		for _, deliver := range all {
			deliver()
		}
	}
}

// taught teaches the servers of a Cluster scripts, and returns a function that restarts the servers. A
// request whose answer is lost is executed only if the server knows its script already.
func taught(t testing.TB, c *testenv.RedisClusterServers, scripts []string) (restart func(testing.TB)) {
	t.Helper()
	teach := func(t testing.TB) {
		for _, r := range c.Servers {
			client := rawClient(t, r.Addr)
			for _, text := range scripts {
				if err := client.Do(within(t, soon), client.B().ScriptLoad().Script(text).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	teach(t)
	return func(t testing.TB) {
		for _, r := range c.Servers {
			r.Stop()
		}
		for _, r := range c.Servers {
			r.Start()
		}
		c.Ready()
		teach(t)
	}
}

// several is the harness of a store of several servers. open opens a backend through proxies, primary
// returns the server of a name, and tag the hash tag of its keys.
func several(addrs []string, open func(testing.TB, *testenv.TCPProxies) driver.Backend, restart func(testing.TB),
	primary func(name string) *testenv.RedisServer, tag func(name string) string, cluster bool,
	refuse map[string]func(testing.TB) func(),
) drivertest.Harness {
	var names []string // one for each server that has names
	for i, seen := 0, map[string]bool{}; i < 100; i++ {
		name := fmt.Sprint("any", i)
		if addr := primary(name).Addr; !seen[addr] {
			seen[addr], names = true, append(names, name)
		}
	}
	return drivertest.Harness{
		TTL:    ttl,
		Only:   connected(),
		Refuse: refuse,
		Damage: damages(primary, tag),
		Forger: forger(primary, tag, cluster, true),
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			p := testenv.Proxies(t, addrs)
			b := open(t, p)
			t.Cleanup(func() { _ = b.Close() })
			heal := func() { p.Each((*testenv.TCPProxy).Heal) }
			return drivertest.Conn{
				Backend:     b,
				Kill:        func() { p.Each((*testenv.TCPProxy).Refuse) },
				Cut:         func() func() { p.Each((*testenv.TCPProxy).Hole); return heal },
				DropReplies: func() func() { p.Each((*testenv.TCPProxy).DropReplies); return heal },
				Hold: func() func() {
					// A request that needs a new connection is not held back: each server has spare
					// connections, because these requests run at the same time.
					p.Each(func(p *testenv.TCPProxy) { p.Delay(20 * time.Millisecond) })
					var all sync.WaitGroup
					for _, name := range names {
						for range 4 {
							all.Go(func() { _, _ = b.Inspect(within(t, soon), name) })
						}
					}
					all.Wait()
					p.Each(func(p *testenv.TCPProxy) { p.Delay(0) })
					return holdAll(p)
				},
				Forget: func() { p.Each((*testenv.TCPProxy).Forget) },
			}
		},
		Restart: restart,
	}
}

type (
	dialCluster  func(testing.TB, *testenv.RedisClusterServers, *testenv.TCPProxies) redislock.Conn
	dialSentinel func(testing.TB, *testenv.RedisSentinelServers, *testenv.TCPProxies) redislock.Conn
)

// likeDial are the options of rueidisconn.Dial, through proxies.
func likeDial(p *testenv.TCPProxies) rueidis.ClientOption {
	return rueidis.ClientOption{
		Dialer: net.Dialer{Timeout: 2 * time.Second, KeepAlive: time.Second}, ConnWriteTimeout: 3 * time.Second,
		DisableRetry: true, DisableCache: true, PipelineMultiplex: -1, ClientSetInfo: rueidis.DisableClientSetInfo,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10,
		Username: "holdfast", Password: "secret",
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return p.Dial(ctx, "tcp", addr)
		},
	}
}

func viaRueidis(t testing.TB, opt rueidis.ClientOption) redislock.Conn {
	t.Helper()
	client, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return rueidisconn.New(client)
}

func clusterRueidis(t testing.TB, c *testenv.RedisClusterServers, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	return rueidisTo(t, c, likeDial(p))
}

func anonymousRueidis(t testing.TB, c *testenv.RedisClusterServers, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	opt := likeDial(p)
	opt.Username, opt.Password = "", ""
	return rueidisTo(t, c, opt)
}

func rueidisTo(t testing.TB, c *testenv.RedisClusterServers, opt rueidis.ClientOption) redislock.Conn {
	t.Helper()
	opt.InitAddress = c.Addrs()
	opt.ClusterOption.MaxMovedRedirections = 16
	return viaRueidis(t, opt)
}

func sentinelRueidis(t testing.TB, s *testenv.RedisSentinelServers, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	opt := likeDial(p)
	for _, r := range s.Sentinels {
		opt.InitAddress = append(opt.InitAddress, r.Addr)
	}
	opt.Sentinel = rueidis.SentinelOption{Dialer: opt.Dialer, MasterSet: s.Master, Username: "watcher", Password: "watch",
		TopologyRefreshInterval: 5 * time.Second}
	return viaRueidis(t, opt)
}

func clusterGoRedis(t testing.TB, c *testenv.RedisClusterServers, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	return goRedisTo(t, c, p, "holdfast", "secret")
}

func anonymousGoRedis(t testing.TB, c *testenv.RedisClusterServers, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	return goRedisTo(t, c, p, "", "")
}

func goRedisTo(t testing.TB, c *testenv.RedisClusterServers, p *testenv.TCPProxies, user,
	password string) redislock.Conn {
	t.Helper()
	return viaGoRedis(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Username: user, Password: password,
		Dialer: p.Dial, DialTimeout: time.Second, ReadTimeout: 3 * time.Second, ContextTimeoutEnabled: true,
	}))
}

func sentinelGoRedis(t testing.TB, s *testenv.RedisSentinelServers, p *testenv.TCPProxies) redislock.Conn {
	t.Helper()
	opt := &redis.FailoverOptions{
		MasterName: s.Master, Username: "holdfast", Password: "secret", SentinelUsername: "watcher",
		SentinelPassword: "watch",
		Dialer:           p.Dial, DialTimeout: time.Second, ReadTimeout: 3 * time.Second, ContextTimeoutEnabled: true,
	}
	for _, r := range s.Sentinels {
		opt.SentinelAddrs = append(opt.SentinelAddrs, r.Addr)
	}
	return viaGoRedis(t, redis.NewFailoverClient(opt))
}

func viaGoRedis(t testing.TB, client redis.UniversalClient) redislock.Conn {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	return goredisconn.New(client)
}

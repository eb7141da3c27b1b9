//go:build linux

package torture

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// deployment is a store, and the faults of its servers.
type deployment struct {
	name     string
	excepted []history.Class // not promised by the store
	start    func(t *testing.T, o *verify.Options)
}

var deployments = []deployment{
	{"redis", nil, func(t *testing.T, o *verify.Options) {
		// Every change is on disk before its answer, so a killed server loses nothing.
		s := testenv.Redis(t, "--appendonly", "yes", "--appendfsync", "always", "--maxclients", "200")
		o.URL = s.URL()
		var one sync.Mutex
		o.Faults = append(restarts(&one, s),
			fault(&one, "clients-thrown-out", func() func() { s.Do("CLIENT KILL TYPE normal SKIPME yes"); return nil }),
			fault(&one, "subscribers-thrown-out", func() func() { s.Do("CLIENT KILL TYPE pubsub"); return nil }),
			fault(&one, "scripts-forgotten", func() func() { s.Do("SCRIPT FLUSH"); return nil }),
			fault(&one, "server-paused", func() func() { s.Do("CLIENT PAUSE 1500 ALL"); return nil }),
			fault(&one, "connections-taken", func() func() { return occupy(s.Addr, 250) }),
			recordDamaged(t, &one, o.URL, damageRedis(s)),
			refusing(&one, s, "replicas-missing", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
			refusing(&one, s, "read-only", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
			refusing(&one, s, "memory-full", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
		)
	}},
	{"replicated", nil, func(t *testing.T, o *verify.Options) {
		// The replica takes over in order, so no grant is lost although no replica confirms one.
		// Some clients stay connected to the old primary, which follows the new one.
		s := testenv.RedisReplicas(t, 1)
		way := testenv.Proxy(t, s.Primary.Addr)
		o.URL = "redis://" + way.Addr
		primary, other := s.Primary, s.Replicas[0]
		var one sync.Mutex
		o.Faults = []verify.Fault{
			fault(&one, "handed-over", func() func() {
				s.HandOver(primary, other)
				primary, other = other, primary
				way.Turn(primary.Addr)
				return way.Reset
			}),
		}
	}},
	{"sentinel", nil, func(t *testing.T, o *verify.Options) {
		s := testenv.RedisSentinel(t, testenv.SentinelSetup{Links: true})
		// All replicas confirm, so whichever is promoted has every grant.
		o.URL = s.URL("") + confirmed(2, o.TTL)
		var one sync.Mutex
		back := func(old int) {
			until(t, "the old primary is a replica", func() bool {
				return s.Servers[old].Info("replication")["role"] == "slave"
			})
			s.InSync()
		}
		fail := func(kind string, begin func(old int), end func(*testenv.RedisServer)) verify.Fault {
			return fault(&one, kind, func() func() {
				old := s.Primary()
				begin(old)
				return func() { end(s.Servers[old]); back(old) }
			})
		}
		o.Faults = []verify.Fault{
			fail("primary-killed", func(old int) { s.Servers[old].Kill(); s.Promoted(old) }, (*testenv.RedisServer).Start),
			fail("primary-frozen", func(old int) { s.Servers[old].Pause(); s.Promoted(old) }, (*testenv.RedisServer).Continue),
			fail("failover", func(old int) { s.Failover(old) }, func(*testenv.RedisServer) {}),
			fail("primary-cut-off", func(old int) { s.Split(old); s.Promoted(old) }, func(*testenv.RedisServer) { s.Join() }),
			fail("primary-killed-alone", func(old int) {
				killWithoutReplicas(o.TTL, s.Servers[old], slices.Delete(slices.Clone(s.Servers), old, old+1))
				s.Promoted(old)
			}, (*testenv.RedisServer).Start),
			fault(&one, "replica-killed", func() func() {
				r := s.Servers[(s.Primary()+1)%len(s.Servers)]
				r.Kill()
				return func() { r.Start(); s.InSync() }
			}),
			fault(&one, "sentinel-killed", func() func() { s.Sentinels[1].Kill(); return s.Sentinels[1].Start }),
		}
	}},
	{"cluster", nil, func(t *testing.T, o *verify.Options) {
		c := testenv.RedisCluster(t, testenv.ClusterSetup{Links: true})
		o.URL = c.URL("") + confirmed(1, o.TTL)
		var one sync.Mutex
		// pick returns a random key, the index of its primary, and that of a running server to
		// query.
		pick := func() (key string, old, asker int) {
			key = fmt.Sprint("k", rand.IntN(1000))
			old = c.Owner(key, 0)
			for asker = range c.Servers {
				if asker != old && c.Owner(key, asker) == old && c.Servers[asker].Info("replication")["role"] == "master" {
					return key, old, asker
				}
			}
			t.Error("no other primary runs")
			return key, old, asker
		}
		fail := func(kind string, begin func(key string, old, asker int), end func(*testenv.RedisServer)) verify.Fault {
			return fault(&one, kind, func() func() {
				key, old, asker := pick()
				begin(key, old, asker)
				return func() { end(c.Servers[old]); c.Ready() }
			})
		}
		o.Faults = []verify.Fault{
			fail("primary-killed", func(key string, old, asker int) { c.Servers[old].Kill(); c.Promoted(key, old, asker) },
				(*testenv.RedisServer).Start),
			fail("primary-frozen", func(key string, old, asker int) { c.Servers[old].Pause(); c.Promoted(key, old, asker) },
				(*testenv.RedisServer).Continue),
			fail("failover", func(key string, old, asker int) { c.Failover(key, old, asker) }, func(*testenv.RedisServer) {}),
			fail("primary-cut-off", func(key string, old, asker int) {
				c.SplitUnnoticed(old)
				c.Promoted(key, old, asker)
			}, func(*testenv.RedisServer) { c.Join() }),
			fail("primary-killed-alone", func(key string, old, asker int) {
				killWithoutReplicas(o.TTL, c.Servers[old], []*testenv.RedisServer{c.Replica(old)})
				c.Promoted(key, old, asker)
			}, (*testenv.RedisServer).Start),
		}
	}},
	{"quorum", []history.Class{history.L3}, func(t *testing.T, o *verify.Options) {
		// The servers have no disk: a killed server restarts empty, and is in quarantine for a
		// while.
		const n, quarantine = 5, 3 * time.Second
		var servers []*testenv.RedisServer
		var addrs []string
		for range n {
			s := testenv.Redis(t)
			servers, addrs = append(servers, s), append(addrs, s.Addr)
		}
		o.URL = "redis+quorum://" + strings.Join(addrs, ",") + "?quarantine=" + quarantine.String()
		clock := servers[0].OwnClock() // it restarts the server, so it comes first
		initialise(t, o.URL)
		some := make([]sync.Mutex, n) // two of five, which are a minority
		onOne := func(kind string, begin func(*testenv.RedisServer) func()) verify.Fault {
			return verify.Fault{Kind: kind, Target: "one of five servers",
				Inject: func(context.Context) (func(context.Context) error, error) {
					i := rand.IntN(n)
					for !some[i].TryLock() {
						i = (i + 1) % n
					}
					end := begin(servers[i])
					return func(context.Context) error {
						defer some[i].Unlock()
						end()
						return nil
					}, nil
				}}
		}
		// A fault ends when the server votes again, so that no third server is out at the same
		// time.
		votes := func(s *testenv.RedisServer) func() {
			return func() { until(t, s.Addr+" votes", func() bool { return inQuorum(t, o.URL, s.Addr) }) }
		}
		o.Faults = []verify.Fault{
			onOne("server-restarted-empty", func(s *testenv.RedisServer) func() {
				s.Kill()
				return func() { s.Start(); votes(s)() }
			}),
			onOne("server-frozen", func(s *testenv.RedisServer) func() { s.Pause(); return s.Continue }),
			onOne("server-emptied", func(s *testenv.RedisServer) func() { s.Do("FLUSHALL"); return votes(s) }),
			onOne("clients-thrown-out", func(s *testenv.RedisServer) func() {
				s.Do("CLIENT KILL TYPE normal SKIPME yes")
				return func() {}
			}),
			recordDamaged(t, allOf(some), o.URL, damageRedis(servers...)),
			{Kind: "clock-set", Target: "one of five servers",
				Inject: func(context.Context) (func(context.Context) error, error) {
					some[0].Lock()
					d := []time.Duration{time.Minute, -time.Minute, o.TTL, -o.TTL, o.TTL / 20, -o.TTL / 20}[rand.IntN(6)]
					clock.Jump(d)
					return func(context.Context) error { defer some[0].Unlock(); clock.Jump(-d); votes(servers[0])(); return nil }, nil
				}},
		}
	}},
	{"zookeeper", nil, func(t *testing.T, o *verify.Options) {
		e := testenv.ZooKeeperEnsemble(t, 3)
		o.URL = e.URL()
		o.TTL = 2 * time.Second
		var one sync.Mutex
		whole := func() {
			for i, z := range e.Servers {
				if words, ended := z.Ended(); ended {
					t.Logf("server %d has ended by itself: %s", i, words)
					z.Start()
				}
			}
			until(t, "all servers follow one", e.Whole)
		}
		onOne := func(kind string, who func() int, begin, end func(*testenv.ZooKeeperServer)) verify.Fault {
			return fault(&one, kind, func() func() {
				z := e.Servers[who()]
				begin(z)
				return func() { end(z); whole() }
			})
		}
		leader := func() int { return e.Leader() }
		follower := func() int { whole(); return e.Followers()[rand.IntN(2)] }
		o.Faults = []verify.Fault{
			onOne("leader-killed", leader, (*testenv.ZooKeeperServer).Kill, (*testenv.ZooKeeperServer).Start),
			onOne("leader-frozen", leader, (*testenv.ZooKeeperServer).Pause, (*testenv.ZooKeeperServer).Continue),
			onOne("follower-killed", follower, (*testenv.ZooKeeperServer).Kill, (*testenv.ZooKeeperServer).Start),
			onOne("follower-frozen", follower, (*testenv.ZooKeeperServer).Pause, (*testenv.ZooKeeperServer).Continue),
			fault(&one, "follower-cut-off", func() func() {
				i := follower()
				e.Isolate(i)
				return func() { e.Join(i); whole() }
			}),
		}
	}},
	{"mariadb", nil, func(t *testing.T, o *verify.Options) {
		s := testenv.MariaDB(t, "--max-connections=150")
		initialise(t, "mysql://root@"+s.Addr+"/test")
		// Root may write although the server is read-only.
		s.Exec("CREATE USER plain", "GRANT ALL ON test.* TO plain")
		o.URL = "mysql://plain@" + s.Addr + "/test"
		var one sync.Mutex
		o.Faults = append(restarts(&one, s),
			fault(&one, "connections-taken", func() func() { return occupy(s.Addr, 160) }),
			recordDamaged(t, &one, o.URL, damageTable(s.Exec, "x'%x'")),
			fault(&one, "read-only", func() func() {
				s.Exec("SET GLOBAL read_only = ON")
				return func() { s.Exec("SET GLOBAL read_only = OFF") }
			}),
		)
	}},
	{"postgres", nil, func(t *testing.T, o *verify.Options) {
		s := testenv.Postgres(t, "max_connections=400")
		o.URL = s.DSN("postgres")
		initialise(t, o.URL)
		var one sync.Mutex
		o.Faults = append(restarts(&one, s),
			recordDamaged(t, &one, o.URL, damageTable(s.Exec, "decode('%x', 'hex')")),
			fault(&one, "backends-terminated", func() func() {
				query(t, o.URL,
					"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
				return nil
			}),
			fault(&one, "backend-killed", func() func() {
				if pid := query(t, o.URL,
					"SELECT max(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"); pid > 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
				}
				return nil
			}),
			fault(&one, "read-only", func() func() {
				readOnly := func(value string) {
					s.Exec("ALTER SYSTEM SET default_transaction_read_only = "+value, "SELECT pg_reload_conf()")
				}
				readOnly("on")
				return func() { readOnly("off") }
			}),
		)
	}},
	{"sqlite", nil, func(t *testing.T, o *verify.Options) {
		path := filepath.Join(t.TempDir(), "locks.db")
		o.URL = "sqlite:" + path
		o.Faults = []verify.Fault{{Kind: "file-locked", Target: "the file",
			Inject: func(ctx context.Context) (func(context.Context) error, error) {
				db, err := sql.Open("sqlite", path)
				if err != nil {
					return nil, err
				}
				end := func(context.Context) error { return db.Close() }
				c, err := db.Conn(ctx)
				if err != nil {
					return end, err
				}
				_, err = c.ExecContext(ctx, "PRAGMA busy_timeout=10000; BEGIN IMMEDIATE")
				return func(ctx context.Context) error {
					_, _ = c.ExecContext(ctx, "ROLLBACK")
					_ = c.Close()
					return end(ctx)
				}, err
			}}, recordDamaged(t, new(sync.Mutex), o.URL, damageFile(t, path))}
	}},
}

// confirmed returns URL parameters that have replicas confirm grants within less than a third of
// the TTL.
func confirmed(replicas int, ttl time.Duration) string {
	return fmt.Sprintf("?replicas=%d&replica-timeout=%v", replicas, ttl*3/10)
}

// killWithoutReplicas kills a primary after a while in which its replicas were frozen, so that they
// miss its last writes.
func killWithoutReplicas(ttl time.Duration, primary *testenv.RedisServer, replicas []*testenv.RedisServer) {
	for _, r := range replicas {
		r.Pause()
	}
	time.Sleep(ttl / 2)
	primary.Kill()
	for _, r := range replicas {
		r.Continue()
	}
}

// stoppable is a server of testenv.
type stoppable interface {
	Kill()
	Start()
	Pause()
	Continue()
}

// restarts are the faults that every single server must survive.
func restarts(one *sync.Mutex, s stoppable) []verify.Fault {
	return []verify.Fault{
		fault(one, "server-killed", func() func() { s.Kill(); return s.Start }),
		fault(one, "server-frozen", func() func() { s.Pause(); return s.Continue }),
	}
}

// refusing has a Redis server refuse writes after begin, until end.
func refusing(one *sync.Mutex, s *testenv.RedisServer, kind, begin, end string) verify.Fault {
	return fault(one, kind, func() func() { s.Do(begin); return func() { s.Do(end) } })
}

package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// deployment is a set of servers. One of them has the lock, and the others can replace it.
type deployment struct {
	servers  []*testenv.RedisServer
	primary  func() int        // returns the index of the server that has the lock
	promoted func(old int) int // waits until another server has it
	follows  func(old int)     // waits until old, which runs again, is a replica in sync
	conns    []redislock.Conn  // clients of both kinds
	url      string
	replicas int // of the server that has the lock
}

const failoverLock = "the lock"

func deploySentinel(t *testing.T) *deployment {
	t.Helper()
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{Users: []string{sentinelRule + " +wait"},
		SentinelUsers: []string{watcherRule}})
	direct := testenv.Proxies(t, nil)
	url := s.URL("holdfast:secret") + "?sentineluser=watcher&sentinelpassword=watch"
	return &deployment{
		servers: s.Servers, replicas: len(s.Servers) - 1, primary: s.Primary, promoted: s.Promoted, url: url,
		follows: func(old int) {
			// The sentinels would do it some ten seconds later.
			s.Servers[old].Do("REPLICAOF " + strings.Replace(s.Servers[s.Primary()].Addr, ":", " ", 1))
			until(t, "the old primary is a replica", func() bool {
				return s.Servers[old].Info("replication")["role"] == "slave"
			})
			s.InSync()
		},
		conns: []redislock.Conn{dialURL(t, url), dialURL(t, url),
			sentinelGoRedis(t, s, direct)},
	}
}

func deployCluster(t *testing.T) *deployment {
	t.Helper()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Users: []string{clusterRule + " +wait"}})
	direct := testenv.Proxies(t, nil)
	url := c.URL("holdfast:secret")
	tag := tagOf(failoverLock)
	now := c.Owner(tag, 0)
	witness := (now + 1) % 3 // a primary without faults
	return &deployment{
		servers: c.Servers, replicas: 1, url: url,
		primary:  func() int { return c.Owner(tag, witness) },
		promoted: func(old int) int { return c.Promoted(tag, old, witness) },
		follows:  func(int) { c.Ready() },
		conns: []redislock.Conn{dialURL(t, url), dialURL(t, url),
			clusterGoRedis(t, c, direct)},
	}
}

// eachDeployment runs a test on both kinds of deployment that promote a replica by themselves.
func eachDeployment(t *testing.T, f func(*testing.T, *deployment)) {
	t.Parallel()
	for name, deploy := range map[string]func(*testing.T) *deployment{
		"sentinel": deploySentinel, "cluster": deployCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, deploy(t))
		})
	}
}

// replicasOf returns the servers that follow a primary.
func (d *deployment) replicasOf(primary int) (all []*testenv.RedisServer) {
	for _, r := range d.servers {
		if i := r.Info("replication"); i["role"] == "slave" &&
			d.servers[primary].Addr == i["master_host"]+":"+i["master_port"] {
			all = append(all, r)
		}
	}
	return all
}

func (d *deployment) backends(t *testing.T, replicas int) []*redislock.Backend {
	t.Helper()
	all := make([]*redislock.Backend, len(d.conns))
	for i, conn := range d.conns {
		all[i] = redislock.New(conn, &redislock.Config{WaitReplicas: replicas})
		t.Cleanup(func() { _ = all[i].Close() })
	}
	return all
}

// TestFailover: after any fault of the server that has the lock, clients of both kinds are served
// again, and no token is granted twice. Exclusion is not promised: replication is asynchronous.
func TestFailover(t *testing.T) {
	eachDeployment(t, func(t *testing.T, d *deployment) {
		load := contend(t, d.backends(t, 0), failoverLock, tokensDiffer)
		defer load.stop(t)
		load.goesOn(t, 15)
		fault := func(what string, f func(*testenv.RedisServer)) {
			start := time.Now()
			f(d.servers[d.primary()])
			load.goesOn(t, 30)
			t.Logf("%s: served again after %v", what, time.Since(start))
		}
		fault("subscribers thrown out", func(r *testenv.RedisServer) { r.Do("CLIENT KILL TYPE pubsub") })
		fault("clients thrown out", func(r *testenv.RedisServer) { r.Do("CLIENT KILL TYPE normal SKIPME yes") })
		fault("scripts forgotten", func(r *testenv.RedisServer) { r.Do("SCRIPT FLUSH") })
		fault("paused", func(r *testenv.RedisServer) { r.Do("CLIENT PAUSE 300 ALL") })
		fault("asleep", func(r *testenv.RedisServer) { r.Do("DEBUG SLEEP 0.3") })
		fault("everything forgotten", func(r *testenv.RedisServer) { r.Do("FLUSHALL") })
		old := d.primary()
		fault("killed", func(r *testenv.RedisServer) {
			r.Kill()
			d.promoted(old)
		})
		d.servers[old].Start()
		d.follows(old)
		load.goesOn(t, 15)
		old = d.primary()
		fault("frozen", func(r *testenv.RedisServer) {
			r.Pause()
			d.promoted(old)
		})
		fault("thawed", func(*testenv.RedisServer) { d.servers[old].Continue() })
		d.follows(old)
		load.goesOn(t, 15)
	})
}

// TestFailoverReplicas: if all replicas have to confirm grants, there are never two holders,
// whichever replica is promoted. Nothing is granted until as many replicas follow the new primary.
func TestFailoverReplicas(t *testing.T) {
	eachDeployment(t, func(t *testing.T, d *deployment) {
		load := contend(t, d.backends(t, d.replicas), failoverLock, oneAtATime)
		defer load.stop(t)
		load.goesOn(t, 15)
		for what, fault := range map[string]func(*testenv.RedisServer) (heal func()){
			"killed": func(r *testenv.RedisServer) func() { r.Kill(); return r.Start },
			"frozen": func(r *testenv.RedisServer) func() { r.Pause(); return r.Continue },
		} {
			start, old := time.Now(), d.primary()
			heal := fault(d.servers[old])
			d.promoted(old)
			heal()
			d.follows(old)
			load.goesOn(t, 15)
			t.Logf("%s: served again after %v", what, time.Since(start))
		}
	})
}

// TestFailoverKeeps: a grant and a place in the queue that had reached the replica survive the
// primary.
func TestFailoverKeeps(t *testing.T) {
	eachDeployment(t, func(t *testing.T, d *deployment) {
		backends := d.backends(t, 0)
		a, b := openSession(t, backends[0], long), openSession(t, backends[2], long)
		h := granted(t, a, exclusive(failoverLock))
		r := exclusive(failoverLock)
		reply := acquire(t, b, r)
		old := d.primary()
		until(t, "the replicas have it", func() bool { return d.replicated(old) })
		d.servers[old].Kill()
		d.promoted(old)
		until(t, "the grant stands", func() bool {
			changes, err := a.Renew(within(t, attempt), []driver.Hold{h})
			for _, ch := range changes {
				if ch.State == driver.Gone {
					t.Fatal("the grant is gone")
				}
			}
			return err == nil && len(changes) == 0
		})
		until(t, "it is released", func() bool {
			err := a.Release(within(t, attempt), h, 0)
			return err == nil || errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrTaken)
		})
		if token := gets(t, b, r, reply); token <= h.Token {
			t.Errorf("token %d after %d", token, h.Token)
		}
	})
}

// replicated reports whether all replicas of a server have received everything that it sent.
func (d *deployment) replicated(primary int) bool {
	text := d.servers[primary].Info("replication")
	var offset int64
	if _, err := fmt.Sscan(text["master_repl_offset"], &offset); err != nil {
		return false
	}
	replicas := d.replicasOf(primary)
	for _, r := range replicas {
		var got int64
		if _, err := fmt.Sscan(r.Info("replication")["slave_repl_offset"], &got); err != nil || got < offset {
			return false
		}
	}
	return len(replicas) > 0
}

// TestFailoverForgets: a grant that had not reached the replica is lost when the primary dies. The
// client learns that when it renews, and the next grant has a larger token.
func TestFailoverForgets(t *testing.T) {
	eachDeployment(t, func(t *testing.T, d *deployment) {
		backends := d.backends(t, 0)
		a, b := openSession(t, backends[0], long), openSession(t, backends[2], long)
		before := granted(t, a, exclusive(failoverLock))
		if err := a.Release(within(t, soon), before, 0); err != nil {
			t.Fatal(err)
		}
		old := d.primary()
		until(t, "the replicas have it", func() bool { return d.replicated(old) })
		replicas := d.replicasOf(old)
		for _, r := range replicas {
			r.Pause()
		}
		// Otherwise they would still read what the primary has sent from their sockets.
		d.servers[old].Do("CLIENT KILL TYPE replica")
		h := granted(t, a, exclusive(failoverLock))
		d.servers[old].Kill()
		for _, r := range replicas {
			r.Continue()
		}
		d.promoted(old)
		var next driver.Reply
		var err error
		r := exclusive(failoverLock)
		defer func() {
			if t.Failed() {
				t.Logf("the last answer: %+v, %v", next, err)
			}
		}()
		until(t, "another is granted it", func() bool {
			next, err = b.Acquire(within(t, attempt), r)
			return err == nil && next.Token != 0
		})
		if next.Token <= h.Token {
			t.Errorf("token %d after %d", next.Token, h.Token)
		}
		until(t, "the holder knows", func() bool {
			changes, err := a.Renew(within(t, attempt), []driver.Hold{h})
			return err == nil && len(changes) == 1 && changes[0].State == driver.Gone
		})
	})
}

// TestFrozenPrimary: subscriptions go to the new primary while the old one is silent, although their
// clients send nothing else that shows it. They also do if go-redis has closed what it had at the
// old one, as it does a minute after a server has left the Cluster.
func TestFrozenPrimary(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{Users: []string{clusterRule}})
	tag := tagOf(failoverLock)
	goRedis := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: "holdfast", Password: "secret"})
	conns := []redislock.Conn{clusterRueidis(t, c, testenv.Proxies(t, nil)), viaGoRedis(t, goRedis)}
	for i, conn := range conns {
		t.Cleanup(func() { _ = conn.Close() })
		stop, err := conn.SubscribeShard(within(t, soon), fmt.Sprint("hf:", tag, ":s:", i), func(string) {}, func() {})
		if err != nil {
			t.Fatal(i, err)
		}
		t.Cleanup(stop)
	}
	old := c.Owner(tag, 0)
	asker := (old + 1) % 3
	there := func(now int) {
		until(t, "all subscriptions are at the new primary", func() bool {
			return shardListeners(t, c.Servers[now]) == len(conns)
		})
	}
	c.Servers[old].Pause()
	now := c.Promoted(tag, old, asker)
	there(now)
	c.Servers[old].Continue()
	c.Ready()
	var node *redis.Client
	until(t, "go-redis knows the new primary", func() bool {
		var err error
		node, err = goRedis.MasterForKey(within(t, soon), tag)
		return err == nil && node.Options().Addr == c.Servers[now].Addr
	})
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	there(c.Failover(tag, now, asker))
}

// TestOldPrimaryLives: the old primary was silent, another was promoted, and the old one is back
// but not demoted. Clients that are still connected to it find out that it is no longer the
// primary.
func TestOldPrimaryLives(t *testing.T) {
	t.Parallel()
	s := testenv.RedisSentinel(t, testenv.SentinelSetup{Users: []string{sentinelRule},
		SentinelUsers: []string{watcherRule}})
	direct := testenv.Proxies(t, nil)
	backends := []*redislock.Backend{
		redislock.New(sentinelRueidis(t, s, direct), nil), redislock.New(sentinelGoRedis(t, s, direct), nil),
	}
	for _, b := range backends {
		openSession(t, b, long)
	}
	old := s.Primary()
	s.Servers[old].Do("ACL SETUSER default -replicaof -slaveof") // it cannot be demoted
	if n := subscribers(t, s.Servers[old]); n != len(backends) {
		t.Fatalf("%d subscribers; want %d", n, len(backends))
	}
	s.Servers[old].Pause()
	now := s.Promoted(old)
	until(t, "requests go to the new primary", func() bool {
		for _, b := range backends {
			if _, err := b.Inspect(within(t, attempt), "x"); err != nil {
				return false
			}
		}
		return true
	})
	s.Servers[old].Continue()
	until(t, "all sessions are at the new primary", func() bool { return subscribers(t, s.Servers[now]) == len(backends) })
}

// TestEviction: a server that evicts has forgotten a grant. Its holder learns that; tokens grow.
func TestEviction(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "--maxmemory-policy", "allkeys-random")
	s, _ := session(t, server.URL(), long)
	h := granted(t, s, exclusive("x"))
	server.Do("CONFIG SET maxmemory 1mb")
	until(t, "everything is evicted", func() bool { return server.Do("DBSIZE") == ":0" })
	server.Do("CONFIG SET maxmemory 0")
	if next := granted(t, s, exclusive("x")); next.Token <= h.Token {
		t.Errorf("token %d after %d", next.Token, h.Token)
	}
	if changes, err := s.Renew(within(t, soon), []driver.Hold{h}); err != nil || len(changes) != 1 ||
		changes[0].State != driver.Gone {
		t.Errorf("Renew: %+v, %v; want Gone", changes, err)
	}
}

package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// The primary dies while a grant is idle. The holder hears of newcomers at the next one, or gives the
// grant back because it may have missed some. Otherwise newcomers here would wait for a minute, and each
// is given half of that.
func TestStickyFailover(t *testing.T) {
	eachDeployment(t, func(t *testing.T, d *deployment) {
		other := stickyClient(t, d.conns[1], long)
		last := map[string]uint64{}
		holders := map[string]*holdfast.Client{
			"rueidis": stickyClient(t, d.conns[0], long), "go-redis": stickyClient(t, d.conns[2], long),
		}
		names := map[string]string{} // in one shard
		sticky := func(kind string) *holdfast.Mutex {
			for i := 0; names[kind] == ""; i++ {
				if name := fmt.Sprint(kind, i); hook.RedisShard(name) == hook.RedisShard(failoverLock) {
					names[kind] = name
				}
			}
			return holders[kind].Mutex(names[kind], holdfast.Sticky(long))
		}
		for name := range holders {
			last[name] = take(t, sticky(name))
			if again := take(t, sticky(name)); again != last[name]+1 {
				t.Fatalf("%s: token %d after %d; want the next one", name, again, last[name])
			}
		}
		old := d.primary()
		until(t, "the replicas have it", func() bool { return d.replicated(old) })
		d.servers[old].Kill()
		d.promoted(old)
		for name := range holders {
			l, err := other.Mutex(names[name]).Lock(within(t, soon))
			if err != nil {
				t.Fatalf("a newcomer, after the failover: %v", err)
			}
			if l.Token() <= last[name] {
				t.Errorf("token %d after %d", l.Token(), last[name])
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			take(t, sticky(name))
		}
	})
}

// A server that refuses to write the place of a newcomer calls nothing back.
func TestStickyRefusedNewcomer(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string][2]string{
		"NOREPLICAS": {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
		"OOM":        {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"READONLY":   {"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			dial := dialRueidis
			if name == "READONLY" { // that client would leave a replica, and lose what is called back
				dial = dialGoRedis
			}
			conn := &recallLoser{Conn: dial(t, server.Addr)}
			c, other := stickyClient(t, conn, long), stickyClient(t, dialURL(t, server.URL()), long)
			m := c.Mutex("x", holdfast.Sticky(long))
			last := take(t, m)
			server.Do(refuse[0])
			for range 3 {
				if l, err := other.Mutex("x").Lock(within(t, time.Second/4)); err == nil {
					t.Fatalf("token %d from a server that refuses writes", l.Token())
				}
			}
			last = max(last, take(t, m))
			if text := conn.heard(); text != "" {
				t.Errorf("the holder has heard %q", text)
			}
			server.Do(refuse[1])
			if token := take(t, other.Mutex("x")); token <= last {
				t.Errorf("token %d after %d", token, last)
			}
		})
	}
}

// The slot of an idle grant moves. A newcomer calls it back at the new server.
func TestStickySlotMoves(t *testing.T) {
	t.Parallel()
	c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule}})
	for kind, dial := range map[string]dialCluster{"rueidis": clusterRueidis, "go-redis": clusterGoRedis} {
		t.Run(kind, func(t *testing.T) {
			open := func() redislock.Conn { return dial(t, c, testenv.Proxies(t, c.Addrs())) }
			holder, other := stickyClient(t, open(), long), stickyClient(t, open(), long)
			name := newID()
			m := holder.Mutex(name, holdfast.Sticky(long))
			last := take(t, m)
			move := c.Migrate(tagOf(name), (c.Owner(tagOf(name), 0)+1)%3)
			move.End()
			l, err := other.Mutex(name).Lock(within(t, soon))
			if err != nil {
				t.Fatalf("a newcomer, after the slot has moved: %v", err)
			}
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			last = take(t, m)
			if again := take(t, m); again != last+1 {
				t.Errorf("token %d after %d; want the next of the idle grant's", again, last)
			}
			if _, err := other.Mutex(name).Lock(within(t, soon)); err != nil {
				t.Errorf("a newcomer, at the new server: %v", err)
			}
		})
	}
}

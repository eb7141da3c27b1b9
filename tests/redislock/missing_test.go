package redislock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// recordKeys are the keys of the record of a name.
func recordKeys(name string) string {
	return fmt.Sprintf("hf:%[1]s:l:%[2]s hf:%[1]s:z:%[2]s hf:%[1]s:m:%[2]s", tagOf(name), name)
}

// loses holds a lock while its record is lost, and returns what WhyMissing says after that.
// The record existed most ago, or less.
func loses(t *testing.T, b *redislock.Backend, name string, most time.Duration, lose func(),
	after ...func()) driver.Cause {
	t.Helper()
	s := openSession(t, b, long)
	h := granted(t, s, exclusive(name))
	granted(t, s, exclusive(newID()))
	proved := time.Now()
	lose()
	until(t, "the record is gone", func() bool {
		changes, err := s.Renew(within(t, soon), []driver.Hold{h})
		if err == nil && (len(changes) != 1 || changes[0].State != driver.Gone || !changes[0].Missing) {
			t.Fatalf("Renew: %+v; want a record that is missing", changes)
		}
		return err == nil
	})
	for _, f := range after {
		f()
	}
	cause, err := b.WhyMissing(within(t, soon), name, min(time.Since(proved), most))
	if err != nil {
		t.Errorf("WhyMissing: %v", err)
	}
	return cause
}

// young is surely less than the uptime of a server that has aged.
const young = 900 * time.Millisecond

// aged waits until the server has run for a second: it may count one too many.
func aged(t *testing.T, server *testenv.RedisServer) {
	t.Helper()
	until(t, "the server has run for a second", func() bool {
		var up int
		_, err := fmt.Sscan(server.Info("server")["uptime_in_seconds"], &up)
		return err == nil && up >= 2
	})
}

// TestWhyMissing loses records in each way, as a user with the documented permissions and +info.
func TestWhyMissing(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{aclRule + " +info", strings.Replace(aclRule, "user holdfast", "user poor", 1)})
	dial := func(user string) *redislock.Backend {
		return redislock.New(dialURL(t, "redis://"+user+":secret@"+server.Addr), nil)
	}
	is := func(what string, got, want driver.Cause) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q; want %q", what, got, want)
		}
	}
	is("restarted", loses(t, dial("holdfast"), "a", long, func() { server.Restart(false) }), driver.CauseRestarted)
	aged(t, server)
	remove := func(name string) func() { return func() { server.Do("DEL " + recordKeys(name)) } }
	is("removed", loses(t, dial("holdfast"), "b", young, remove("b")), driver.CauseDeleted)
	again := func(name string) func() {
		return func() {
			s, _ := session(t, server.URL(), long)
			granted(t, s, exclusive(name))
		}
	}
	is("removed, and taken again", loses(t, dial("holdfast"), "c", young, remove("c"), again("c")), driver.CauseDeleted)
	is("removed, with all of its shard", loses(t, dial("holdfast"), "e", young, func() {
		server.Do("DEL " + recordKeys("e") + " hf:" + tagOf("e") + ":i hf:" + tagOf("e") + ":t")
	}), driver.CauseUnknown)
	is("without INFO", loses(t, dial("poor"), "d", young, remove("d")), driver.CauseUnknown)
	is("FLUSHALL", loses(t, dial("holdfast"), "f", young, func() { server.Do("FLUSHALL") }), driver.CauseFlushed)
	is("FLUSHALL, and taken again", loses(t, dial("holdfast"), "k", young, func() { server.Do("FLUSHALL") }, again("k")),
		driver.CauseFlushed)
	is("FLUSHDB", loses(t, dial("holdfast"), "g", young, func() { server.Do("FLUSHDB") }), driver.CauseFlushed)
	is("removed, long after", loses(t, dial("holdfast"), "h", young, remove("h")), driver.CauseDeleted)

	server.Do("CONFIG SET maxmemory-policy allkeys-random")
	is("evicted", loses(t, dial("holdfast"), "i", young, func() {
		key := strings.Fields(recordKeys("i"))[0]
		server.Do("CONFIG SET maxmemory " + fmt.Sprint(memory(t, server)+1<<20))
		until(t, "the record is evicted", func() bool {
			for range 20 {
				server.Do("SETRANGE junk" + newID() + " 50000 x")
			}
			return server.Do("EXISTS "+key) == ":0"
		})
	}), driver.CauseEvicted)
}

func memory(t *testing.T, server *testenv.RedisServer) (n int64) {
	t.Helper()
	if _, err := fmt.Sscan(server.Info("memory")["used_memory"], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWhyMissingElsewhere: a promoted replica may not have got the record. In a Cluster the server
// with the name's slot is asked.
func TestWhyMissingElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("replica", func(t *testing.T) {
		t.Parallel()
		set := testenv.RedisReplicas(t, 1)
		set.InSync(set.Replicas[0], set.Primary)
		aged(t, set.Replicas[0])
		set.Replicas[0].Do("REPLICAOF NO ONE")
		b := redislock.New(dialRueidis(t, set.Replicas[0].Addr), nil)
		got := loses(t, b, "x", young, func() { set.Replicas[0].Do("DEL " + recordKeys("x")) })
		if got != driver.CauseUnknown {
			t.Errorf("after a failover: %q", got)
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule + " +info"}})
		owner := c.Servers[c.Owner(tagOf("x"), 0)]
		for _, s := range c.Servers {
			aged(t, s)
			if s != owner {
				s.Do("FLUSHALL")
			}
		}
		for what, loss := range map[string]struct {
			lose func()
			want driver.Cause
		}{
			"removed":  {func() { owner.Do("DEL " + recordKeys("x")) }, driver.CauseDeleted},
			"FLUSHALL": {func() { owner.Do("FLUSHALL") }, driver.CauseFlushed},
		} {
			for client, dial := range map[string]dialCluster{"rueidis": clusterRueidis, "go-redis": clusterGoRedis} {
				b := redislock.New(dial(t, c, testenv.Proxies(t, nil)), nil)
				if got := loses(t, b, "x", young, loss.lose); got != loss.want {
					t.Errorf("%s, %s: %q; want %q", what, client, got, loss.want)
				}
			}
		}
	})
}

package testenv

import (
	"net"
	"strings"
	"testing"
	"time"
)

// A server of a Cluster that stands still for less than this must not be replaced: these tests name
// the first primary.
const clusterPatience = 3 * time.Second

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := RedisSentinel(t, SentinelSetup{})
	t.Logf("started in %v", time.Since(start))
	old := s.Primary()
	if old != 0 {
		t.Errorf("server %d is the primary", old)
	}
	s.Servers[old].Do("SET a 1")
	for _, r := range s.Servers[1:] {
		eventually(t, "the replicas have the value", func() bool { return r.Do("EXISTS a") == ":1" })
	}
	start = time.Now()
	s.Servers[old].Kill()
	now := s.Promoted(old)
	t.Logf("promoted in %v", time.Since(start))
	if got := s.Servers[now].Do("INCR a"); got != ":2" {
		t.Error(got)
	}
	s.Servers[old].Start()
	eventually(t, "the old primary follows", func() bool { return s.Servers[old].Info("replication")["role"] == "slave" })
	s.InSync()
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := RedisCluster(t, ClusterSetup{Down: clusterPatience})
	t.Logf("started in %v", time.Since(start))
	old := c.Owner("a", 0)
	other := (old + 1) % 3
	c.Servers[old].Do("SET a 1")
	m := c.Migrate("a", other)
	if m.From != old || m.Move(10) != 1 {
		t.Errorf("%+v", m)
	}
	m.End()
	if now := c.Owner("a", old); now != other || c.Servers[now].Do("INCR a") != ":2" {
		t.Errorf("server %d owns the slot", now)
	}
	c.Ready()
	eventually(t, "the replica has the value", func() bool {
		r := c.Servers[other].Info("replication")
		return strings.Contains(r["slave0"], "state=online,offset="+r["master_repl_offset"]+",")
	})
	start = time.Now()
	c.Servers[other].Kill()
	now := c.Promoted("a", other, old)
	t.Logf("promoted in %v", time.Since(start))
	if got := c.Servers[now].Do("INCR a"); got != ":3" {
		t.Error(got)
	}
	c.Servers[other].Start()
	c.Ready()
}

// A primary that is cut off still serves its clients, and follows the next one when it is joined.
func TestRedisSentinelSplit(t *testing.T) {
	t.Parallel()
	s := RedisSentinel(t, SentinelSetup{Links: true})
	old := s.Primary()
	s.Split(old)
	now := s.Promoted(old)
	last := s.Sentinels[len(s.Sentinels)-1]
	if words, err := last.call("SENTINEL GET-MASTER-ADDR-BY-NAME " + s.Master); err != nil ||
		s.links.find(s.Servers, net.JoinHostPort(words[0], words[1])) != old {
		t.Errorf("the sentinel that was cut off names %v, %v", words, err)
	}
	if s.Servers[old].Do("SET a 1") != "+OK" || s.Servers[now].Do("SET b 1") != "+OK" {
		t.Error("one of the primaries does not serve")
	}
	s.Join()
	eventually(t, "the old primary follows", func() bool { return s.Servers[old].Info("replication")["role"] == "slave" })
	s.InSync()
	if got := s.Servers[old].Do("EXISTS a") + s.Servers[old].Do("EXISTS b"); got != ":0:1" {
		t.Errorf("the old primary has %s", got)
	}
}

func TestRedisClusterSplit(t *testing.T) {
	t.Parallel()
	c := RedisCluster(t, ClusterSetup{Links: true, Down: clusterPatience})
	old := c.Owner("a", 0)
	other := (old + 1) % 3
	c.Split(old)
	// It serves for its node timeout, which may be over already.
	if got := c.Servers[old].Do("SET a 1"); got != "+OK" && !strings.HasPrefix(got, "-CLUSTERDOWN") {
		t.Errorf("just cut off: %s", got)
	}
	now := c.Promoted("a", old, other)
	if got := c.Servers[now].Do("SET a 10"); got != "+OK" {
		t.Error(got)
	}
	eventually(t, "the minority stops", func() bool {
		return strings.HasPrefix(c.Servers[old].Do("INCR a"), "-CLUSTERDOWN")
	})
	c.Join()
	eventually(t, "the old primary follows", func() bool { return c.Servers[old].Info("replication")["role"] == "slave" })
	c.Ready()
	if got := c.Servers[now].Do("INCR a"); got != ":11" {
		t.Errorf("it does not have the majority's value: %s", got)
	}
}

func TestRedisReplicatedTLS(t *testing.T) {
	t.Parallel()
	if got := RedisCluster(t, ClusterSetup{TLS: true}).Servers[0].Do("PING"); got != "+PONG" {
		t.Error(got)
	}
	if s := RedisSentinel(t, SentinelSetup{TLS: true}); s.Primary() != 0 {
		t.Error("no primary")
	}
}

package testenv

import (
	"testing"
	"time"
)

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
		eventually(t, "the replicas have it", func() bool { return r.Do("EXISTS a") == ":1" })
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
	c := RedisCluster(t, ClusterSetup{})
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
		t.Errorf("server %d has it", now)
	}
	c.Ready()
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

func TestRedisReplicatedTLS(t *testing.T) {
	t.Parallel()
	if got := RedisCluster(t, ClusterSetup{TLS: true}).Servers[0].Do("PING"); got != "+PONG" {
		t.Error(got)
	}
	if s := RedisSentinel(t, SentinelSetup{TLS: true}); s.Primary() != 0 {
		t.Error("no primary")
	}
}

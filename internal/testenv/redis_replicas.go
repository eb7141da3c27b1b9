package testenv

import (
	"net"
	"strings"
	"testing"
)

// RedisReplicaSet is a primary and its replicas. Each of them can be paused, killed and started
// like any RedisServer.
type RedisReplicaSet struct {
	Primary  *RedisServer
	Replicas []*RedisServer

	t     testing.TB
	links []*TCPProxy // from the replica to the primary
}

// RedisReplicas starts a primary with n replicas, all with the arguments args. Each replica follows
// through a proxy, so that it can be cut off. RedisReplicas returns when all are in sync.
func RedisReplicas(t testing.TB, n int, args ...string) *RedisReplicaSet {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	s := &RedisReplicaSet{t: t, Primary: Redis(t, args...)}
	for range n {
		link := Proxy(t, s.Primary.Addr)
		host, port, _ := net.SplitHostPort(link.Addr)
		r := Redis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
		s.links, s.Replicas = append(s.links, link), append(s.Replicas, r)
	}
	for _, r := range s.Replicas {
		s.InSync(r, s.Primary)
	}
	return s
}

// InSync waits until replica follows primary and has the data that primary had at that time.
func (s *RedisReplicaSet) InSync(replica, primary *RedisServer) {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(replica.Addr)
	eventually(s.t, "the primary lists "+replica.Addr, func() bool {
		if replica.Info("replication")["master_link_status"] != "up" {
			return false
		}
		for field, value := range primary.Info("replication") {
			if strings.HasPrefix(field, "slave") && strings.Contains(value, "port="+port+",state=online") {
				return true
			}
		}
		return false
	})
}

// Cut cuts replica i off from the primary, silently: writes that have not arrived never arrive, not
// even after Join. The two keep their connections for a while.
func (s *RedisReplicaSet) Cut(i int) { s.links[i].Hole() }

// Join ends Cut.
func (s *RedisReplicaSet) Join(i int) { s.links[i].Heal() }

// Promote makes replica i the primary, and the other running servers its replicas, as a failover
// does. The old primary gets no command. Promote returns when they are in sync.
func (s *RedisReplicaSet) Promote(i int) {
	s.t.Helper()
	fresh := s.Replicas[i]
	if reply := fresh.Do("REPLICAOF NO ONE"); !strings.HasPrefix(reply, "+OK") {
		s.t.Fatalf("REPLICAOF NO ONE: %s", reply)
	}
	for j, r := range s.Replicas {
		if j == i || r.run.Ended() {
			continue
		}
		s.Follow(r, fresh)
	}
}

// Follow makes r a replica of primary, without a proxy, and returns when it is in sync.
func (s *RedisReplicaSet) Follow(r, primary *RedisServer) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(primary.Addr)
	if reply := r.Do("REPLICAOF " + host + " " + port); !strings.HasPrefix(reply, "+OK") {
		s.t.Fatalf("REPLICAOF: %s", reply)
	}
	s.InSync(r, primary)
}

// HandOver makes a replica of old the primary with FAILOVER: it has received all writes, and old
// follows it. Clients of old keep their connections.
func (s *RedisReplicaSet) HandOver(old, next *RedisServer) {
	s.t.Helper()
	s.InSync(next, old)
	host, port, _ := net.SplitHostPort(next.Addr)
	if reply := old.Do("FAILOVER TO " + host + " " + port + " TIMEOUT 10000"); !strings.HasPrefix(reply, "+OK") {
		s.t.Fatalf("FAILOVER: %s", reply)
	}
	eventually(s.t, next.Addr+" becomes the primary", func() bool { return next.Info("replication")["role"] == "master" })
	s.InSync(old, next)
}

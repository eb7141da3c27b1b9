package testenv

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ClusterSetup says what RedisCluster starts. The zero value is three primaries with a replica
// each. A server counts as down when it has been silent for a second.
type ClusterSetup struct {
	NoReplicas bool
	Users      []string // rules of users, as for RedisACL
	TLS        bool     // all connections use TLS
	Args       []string // of every server
	Links      bool     // servers and clients connect through proxies: see Split

	// Down is for how long a server must be silent to count as failed. 0: a second, or longer without
	// replicas.
	Down time.Duration
}

// RedisClusterServers are the servers of a Redis Cluster.
type RedisClusterServers struct {
	Servers []*RedisServer

	t         testing.TB
	ids       []string
	links     *redisLinks // nil without links
	down      string      // after so many milliseconds a server that is silent counts as failed
	unnoticed []int       // servers of SplitUnnoticed
}

// RedisCluster starts a Cluster. It returns when all its servers agree on the owners of the slots,
// and the replicas are in sync.
func RedisCluster(t testing.TB, setup ClusterSetup) *RedisClusterServers {
	t.Helper()
	const primaries = 3
	n, failed := 2*primaries, "1000" // milliseconds without an answer
	if setup.NoReplicas {
		// There is no failover to wait for. A server that had no processor for a second must not count
		// as failed.
		n, failed = primaries, "10000"
	}
	if setup.Down > 0 {
		failed = fmt.Sprint(setup.Down.Milliseconds())
	}
	c := &RedisClusterServers{t: t, down: failed}
	var certs *Certs
	tls := []string(nil)
	if setup.TLS {
		certs = NewCerts(t)
		tls = []string{"--tls-replication", "yes", "--tls-cluster", "yes"}
	}
	all, release := reserve(t, 2*n)
	release()
	port := func(i int) string { _, p, _ := net.SplitHostPort(all[i]); return p }
	// Their addresses for each other.
	known := func(i int) (client, bus string) { return port(i), port(n + i) }
	if setup.Links {
		members := make([][]string, n)
		for i := range n {
			members[i] = []string{all[i], all[n+i]}
		}
		c.links = newLinks(t, members)
		known = func(i int) (string, string) {
			_, client := c.links.addr(i, 0)
			_, bus := c.links.addr(i, 1)
			return client, bus
		}
	}
	for i := range n {
		var links []string
		if setup.Links {
			client, bus := known(i)
			links = append(c.links.source(i), "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", client,
				"--cluster-announce-bus-port", bus)
		}
		c.Servers = append(c.Servers, newRedis(t, certs, all[i], slices.Concat([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", failed,
			"--cluster-port", port(n + i), "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
			"--repl-timeout", "5", "--repl-ping-replica-period", "1", "--enable-debug-command", "yes",
		}, tls, links, aclArgs(t, setup.Users), setup.Args)))
	}
	for _, r := range c.Servers {
		r.launch()
	}
	for i, r := range c.Servers {
		r.await()
		c.must(i, fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1))
		c.ids = append(c.ids, c.must(i, "CLUSTER MYID")[0])
		if i < primaries {
			c.must(i, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*16384/primaries, (i+1)*16384/primaries-1))
		}
	}
	c.meet(known)
	for i := primaries; i < n; i++ {
		eventually(t, "a server becomes a replica", func() bool {
			_, err := c.Servers[i].call("CLUSTER REPLICATE " + c.ids[i-primaries])
			return err == nil
		})
	}
	c.Ready()
	return c
}

// meet introduces the servers to each other; known returns the address of server i. A server drops
// one that does not answer its greeting in time. So the first server greets again those
// that it does not know. The others learn from the first.
func (c *RedisClusterServers) meet(known func(i int) (client, bus string)) {
	c.t.Helper()
	var greeted time.Time
	for i := range c.Servers {
		eventually(c.t, "the servers know each other", func() bool {
			if time.Since(greeted) > 2*time.Second {
				nodes := c.must(0, "CLUSTER NODES")[0]
				for j, id := range c.ids {
					if client, bus := known(j); !strings.Contains(nodes, id) {
						c.must(0, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %s %s", client, bus))
					}
				}
				greeted = time.Now()
			}
			nodes := c.must(i, "CLUSTER NODES")[0]
			return strings.Count(nodes, " connected") == len(c.ids) && !strings.Contains(nodes, "handshake")
		})
	}
}

// must runs a command at one of the servers.
func (c *RedisClusterServers) must(i int, line string) []string {
	c.t.Helper()
	words, err := c.Servers[i].call(line)
	if err != nil || len(words) == 0 {
		c.t.Fatalf("%s at server %d: %v", line, i, err)
	}
	return words
}

// Ready waits until all running servers report that the Cluster is ok, and replicas are in sync.
func (c *RedisClusterServers) Ready() {
	c.t.Helper()
	for _, r := range c.Servers {
		eventually(c.t, "the Cluster is ok", func() bool {
			return r.run.Ended() || r.fields("CLUSTER INFO")["cluster_state"] == "ok" &&
				r.fields("CLUSTER INFO")["cluster_slots_ok"] == "16384"
		})
	}
	inSync(c.t, c.Servers)
}

// Addrs returns the addresses of all servers.
func (c *RedisClusterServers) Addrs() []string { return addrs(c.Servers) }

// URL returns the URL for a user ("name:password", or empty), with all servers.
func (c *RedisClusterServers) URL(user string) string {
	return urlOfAll("redis", "+cluster", user, c.Servers) + query(c.Servers[0].TLS)
}

// Owner returns the index of the server that owns the slot of key, as the server asker reports it.
func (c *RedisClusterServers) Owner(key string, asker int) int {
	c.t.Helper()
	return c.ownerOf(c.slot(key, asker), asker)
}

func (c *RedisClusterServers) ownerOf(slot, asker int) int {
	c.t.Helper()
	for line := range strings.Lines(c.must(asker, "CLUSTER NODES")[0]) {
		// id, address, flags, primary, ping, pong, epoch, link, slots...
		f := strings.Fields(line)
		for _, r := range f[min(8, len(f)):] {
			from, to, several := strings.Cut(r, "-")
			if !several {
				to = from
			}
			low, err1 := strconv.Atoi(from)
			high, err2 := strconv.Atoi(to)
			if err1 == nil && err2 == nil && low <= slot && slot <= high {
				return slices.Index(c.ids, f[0])
			}
		}
	}
	return -1
}

// slot asks the given server: another one may be stopped.
func (c *RedisClusterServers) slot(key string, asker int) int {
	c.t.Helper()
	n, err := strconv.Atoi(c.must(asker, "CLUSTER KEYSLOT "+key)[0])
	must(c.t, err)
	return n
}

// Promoted waits until, as asker reports, a server other than old owns the slot of key and serves.
// It returns the new owner's index.
func (c *RedisClusterServers) Promoted(key string, old, asker int) (now int) {
	c.t.Helper()
	eventually(c.t, "a replica is promoted", func() bool {
		return c.replaced(key, old, &now, asker)
	})
	return now
}

// replaced does not ask old, which may be stopped.
func (c *RedisClusterServers) replaced(key string, old int, now *int, asker int) bool {
	*now = c.Owner(key, asker)
	return *now >= 0 && *now != old && c.Servers[*now].fields("CLUSTER INFO")["cluster_state"] == "ok"
}

// Split cuts a server off from all others, silently. Clients reach both sides.
func (c *RedisClusterServers) Split(server int) { c.links.cut(server) }

// SplitUnnoticed is Split of a server that goes on serving for seconds after the others have a new primary: it
// takes them for failed much later than they take it for failed. Join ends that, too.
func (c *RedisClusterServers) SplitUnnoticed(server int) {
	c.Servers[server].Do("CONFIG SET cluster-node-timeout 8000")
	c.unnoticed = append(c.unnoticed, server)
	c.Split(server)
}

// Join ends Split.
func (c *RedisClusterServers) Join() {
	for _, i := range c.unnoticed {
		c.Servers[i].Do("CONFIG SET cluster-node-timeout " + c.down)
	}
	c.unnoticed = nil
	c.links.join()
}

// Replica returns a replica of a primary.
func (c *RedisClusterServers) Replica(primary int) (replica *RedisServer) {
	c.t.Helper()
	eventually(c.t, "the primary has a replica", func() bool {
		for _, r := range c.Servers {
			if i := r.Info("replication"); i["role"] == "slave" &&
				c.links.find(c.Servers, net.JoinHostPort(i["master_host"], i["master_port"])) == primary {
				replica = r
			}
		}
		return replica != nil
	})
	return replica
}

// Failover makes a replica of old its successor and waits for it as Promoted does. The replica must
// run. It gives up if it has not caught up with old within 5 seconds, or has no majority; Failover
// then repeats the command, as people would.
func (c *RedisClusterServers) Failover(key string, old, asker int) (now int) {
	c.t.Helper()
	var lastTry time.Time
	eventually(c.t, "a replica becomes the primary", func() bool {
		if time.Since(lastTry) > 6*time.Second {
			if _, err := c.Replica(old).call("CLUSTER FAILOVER"); err == nil {
				lastTry = time.Now()
			}
		}
		return c.replaced(key, old, &now, asker)
	})
	return now
}

// Migration is the move of one slot from one server to another, step by step.
type Migration struct {
	c        *RedisClusterServers
	slot     int
	From, To int // indexes of servers
}

// Migrate begins to move the slot of key to another server: from now on both have a part of its
// keys.
func (c *RedisClusterServers) Migrate(key string, to int) *Migration {
	c.t.Helper()
	m := &Migration{c: c, slot: c.slot(key, to), From: c.Owner(key, to), To: to}
	c.must(m.To, fmt.Sprintf("CLUSTER SETSLOT %d IMPORTING %s", m.slot, c.ids[m.From]))
	c.must(m.From, fmt.Sprintf("CLUSTER SETSLOT %d MIGRATING %s", m.slot, c.ids[m.To]))
	return m
}

// Move moves up to n keys and returns how many.
func (m *Migration) Move(n int) (moved int) {
	m.c.t.Helper()
	words, err := m.c.Servers[m.From].call(fmt.Sprintf("CLUSTER GETKEYSINSLOT %d %d", m.slot, n))
	must(m.c.t, err)
	for _, key := range words {
		m.MoveKey(key)
	}
	return len(words)
}

// MoveKey moves one key, if it exists.
func (m *Migration) MoveKey(key string) {
	m.c.t.Helper()
	host, port, _ := net.SplitHostPort(m.c.Servers[m.To].Addr)
	m.c.must(m.From, fmt.Sprintf("MIGRATE %s %s %s 0 5000", host, port, key))
}

// End moves the other keys, and gives the slot to its new server.
func (m *Migration) End() {
	m.c.t.Helper()
	for m.Move(100) > 0 {
	}
	line := fmt.Sprintf("CLUSTER SETSLOT %d NODE %s", m.slot, m.c.ids[m.To])
	m.c.must(m.To, line)
	m.c.must(m.From, line)
	for i, r := range m.c.Servers {
		eventually(m.c.t, "all servers know the slot's owner", func() bool {
			return r.run.Ended() || m.c.ownerOf(m.slot, i) == m.To
		})
	}
}

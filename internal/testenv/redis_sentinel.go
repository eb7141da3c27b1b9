package testenv

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// SentinelSetup says what RedisSentinel starts. The zero value is a primary, two replicas and three
// sentinels. While [RedisSentinelServers.Promoted] waits, a server counts as down when it has been
// silent for 600 ms, and at other times after a minute: a busy machine shall cause no failover.
type SentinelSetup struct {
	Users         []string // rules of users at the servers, as for RedisACL
	SentinelUsers []string // rules of users at the sentinels
	Identity      string   // "user:password" of the sentinels, at servers and sentinels; "": the default user
	TLS           bool     // all connections use TLS
	Args          []string // of the servers
	Links         bool     // servers and clients connect through proxies: see Split
}

// RedisSentinelServers are a primary, its replicas, and the sentinels that watch them.
type RedisSentinelServers struct {
	Servers   []*RedisServer // the first is the initial primary
	Sentinels []*RedisServer
	Master    string // its name at the sentinels

	t     testing.TB
	links *redisLinks // nil without links
}

// RedisSentinel starts the servers. It returns when the replicas are in sync and every sentinel
// knows all others.
func RedisSentinel(t testing.TB, setup SentinelSetup) *RedisSentinelServers {
	t.Helper()
	const replicas, sentinels = 2, 3
	s := &RedisSentinelServers{t: t, Master: "mymaster"}
	var certs *Certs
	tls := []string(nil)
	if setup.TLS {
		certs = NewCerts(t)
		tls = []string{"--tls-replication", "yes"}
	}
	// No other program may take a server's address while the server is down.
	addrs, release := reserve(t, 1+replicas+sentinels)
	release()
	known := slices.Clone(addrs) // their addresses for each other
	if setup.Links {
		members := make([][]string, len(addrs))
		for i, a := range addrs {
			members[i] = []string{a}
		}
		s.links = newLinks(t, members)
		for i := range addrs {
			known[i] = net.JoinHostPort(s.links.addr(i, 0))
		}
	}
	for i := range 1 + replicas {
		args := slices.Concat([]string{
			"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-timeout", "5",
			"--repl-ping-replica-period", "1", "--enable-debug-command", "yes",
		}, tls, aclArgs(t, setup.Users), setup.Args)
		if i > 0 {
			args = append(args, "--replicaof", spaced(known[0]))
		}
		if setup.Links {
			host, port := s.links.addr(i, 0)
			args = slices.Concat(args, s.links.source(i), []string{"--replica-announce-ip", host, "--replica-announce-port",
				port})
		}
		s.Servers = append(s.Servers, newRedis(t, certs, addrs[i], args))
	}
	for _, r := range s.Servers {
		r.launch()
	}
	for _, r := range s.Servers {
		r.await()
	}
	inSync(t, s.Servers)
	for i, addr := range addrs[1+replicas:] {
		var args []string
		if setup.Links {
			args = s.links.source(1 + replicas + i)
		}
		r := newRedis(t, certs, addr, args)
		// They know from the start what they would exchange within some seconds.
		lines := append([]string{
			fmt.Sprintf("sentinel myid %040d", i+1),
			"sentinel monitor " + s.Master + " " + spaced(known[0]) + " 2",
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", s.Master, time.Minute.Milliseconds()),
			"sentinel failover-timeout " + s.Master + " 3000",
			"sentinel parallel-syncs " + s.Master + " 2",
		}, tlsLines(tls)...)
		if user, password, ok := strings.Cut(setup.Identity, ":"); ok {
			lines = append(lines, "sentinel auth-user "+s.Master+" "+user, "sentinel auth-pass "+s.Master+" "+password,
				"sentinel sentinel-user "+user, "sentinel sentinel-pass "+password)
		}
		for _, a := range known[1 : 1+replicas] {
			lines = append(lines, "sentinel known-replica "+s.Master+" "+spaced(a))
		}
		for j, a := range known[1+replicas:] {
			if j != i {
				lines = append(lines, fmt.Sprintf("sentinel known-sentinel %s %s %040d", s.Master, spaced(a), j+1))
			}
		}
		if setup.Links {
			host, port := s.links.addr(1+replicas+i, 0)
			lines = append(lines, "sentinel announce-ip "+host, "sentinel announce-port "+port)
		}
		file := filepath.Join(filepath.Dir(r.Socket), "sentinel.conf")
		must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		r.argv = slices.Concat([]string{r.argv[0], file}, r.argv[1:], aclArgs(t, setup.SentinelUsers), []string{"--sentinel"})
		r.what = "the sentinel"
		s.Sentinels = append(s.Sentinels, r)
		r.launch()
	}
	for _, r := range s.Sentinels {
		r.await()
		// A sentinel whose machine stood still for two seconds starts no failover for half a minute (TILT).
		_, err := r.call("SENTINEL DEBUG TILT-PERIOD 1000")
		must(t, err)
		eventually(t, "the sentinels see each other", func() bool {
			words, err := r.call("SENTINEL CKQUORUM " + s.Master)
			return err == nil && len(words) == 1 && strings.HasPrefix(words[0], "OK 3")
		})
	}
	return s
}

func tlsLines(args []string) (lines []string) {
	for i := 0; i+1 < len(args); i += 2 {
		lines = append(lines, strings.TrimPrefix(args[i], "--")+" "+args[i+1])
	}
	return lines
}

func spaced(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return host + " " + port
}

// Addrs returns the addresses of all servers and sentinels.
func (s *RedisSentinelServers) Addrs() []string {
	return append(addrs(s.Servers), addrs(s.Sentinels)...)
}

func addrs(servers []*RedisServer) []string {
	all := make([]string, len(servers))
	for i, r := range servers {
		all[i] = r.Addr
	}
	return all
}

// URL returns the URL for a user ("name:password", or empty), with all sentinels.
func (s *RedisSentinelServers) URL(user string) string {
	return urlOfAll("redis", "+sentinel", user, s.Sentinels) + "/" + s.Master + query(s.Servers[0].TLS)
}

func urlOfAll(scheme, kind, user string, servers []*RedisServer) string {
	if servers[0].TLS != nil {
		scheme += "s"
	}
	if user != "" {
		user += "@"
	}
	return scheme + kind + "://" + user + strings.Join(addrs(servers), ",")
}

func query(certs *Certs) string {
	if certs == nil {
		return ""
	}
	return "?ca=" + certs.CA + "&cert=" + certs.Cert + "&key=" + certs.Key
}

// Primary returns the index of the server that most sentinels report as the primary.
func (s *RedisSentinelServers) Primary() int {
	s.t.Helper()
	found := -1
	eventually(s.t, "most sentinels agree on a primary", func() bool {
		votes := map[string]int{}
		for _, r := range s.Sentinels {
			if words, err := r.call("SENTINEL GET-MASTER-ADDR-BY-NAME " + s.Master); err == nil && len(words) == 2 {
				addr := net.JoinHostPort(words[0], words[1])
				if votes[addr]++; votes[addr] >= 2 {
					found = s.links.find(s.Servers, addr)
				}
			}
		}
		return found >= 0
	})
	return found
}

// Split cuts a server and the last sentinel off from all others, silently. Clients reach both
// sides.
func (s *RedisSentinelServers) Split(server int) {
	s.links.cut(server, len(s.Servers)+len(s.Sentinels)-1)
}

// Join ends Split.
func (s *RedisSentinelServers) Join() { s.links.join() }

// Promoted waits until a server other than old is the primary and accepts writes, and returns its
// index.
func (s *RedisSentinelServers) Promoted(old int) int {
	s.t.Helper()
	s.setDown(600 * time.Millisecond)
	defer s.setDown(time.Minute)
	now := old
	eventually(s.t, "another server is promoted", func() bool {
		return s.leads(&now) && now != old
	})
	return now
}

// setDown sets for how long a server must be silent to be down.
func (s *RedisSentinelServers) setDown(silent time.Duration) {
	for _, r := range s.Sentinels {
		if !r.run.Ended() {
			r.Do(fmt.Sprintf("SENTINEL SET %s down-after-milliseconds %d", s.Master, silent.Milliseconds()))
		}
	}
}

func (s *RedisSentinelServers) leads(now *int) bool {
	*now = s.Primary()
	return s.Servers[*now].Info("replication")["role"] == "master"
}

// Failover makes a replica the successor of old, which must run, and waits for it as Promoted does.
// The sentinels give up a failover that takes too long; Failover then repeats the command, as
// people would.
func (s *RedisSentinelServers) Failover(old int) (now int) {
	s.t.Helper()
	var lastTry time.Time
	eventually(s.t, "a replica becomes the primary", func() bool {
		if time.Since(lastTry) > 6*time.Second {
			if _, err := s.Sentinels[0].call("SENTINEL FAILOVER " + s.Master); err == nil {
				lastTry = time.Now()
			}
		}
		return s.leads(&now) && now != old
	})
	return now
}

// Refused returns the commands that running servers and sentinels refused to users, each with its
// user: "sentinels slaveof".
func (s *RedisSentinelServers) Refused() (all []string) {
	s.t.Helper()
	for _, r := range slices.Concat(s.Servers, s.Sentinels) {
		if r.run.Ended() {
			continue
		}
		words, err := r.call("ACL LOG")
		must(s.t, err)
		object := ""
		for i, w := range words[:max(0, len(words)-1)] {
			switch w {
			case "object":
				object = words[i+1]
			case "username":
				all = append(all, words[i+1]+" "+object)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// InSync waits until every other running server is in sync with the primary. A replica that was started
// again first follows the primary of its command line, which may be a replica now. The sentinels change
// that some ten seconds later.
func (s *RedisSentinelServers) InSync() {
	s.t.Helper()
	inSync(s.t, s.Servers)
	eventually(s.t, "all servers follow the primary", func() bool {
		primary := s.Servers[s.Primary()]
		missing := 0
		for _, r := range s.Servers {
			if r != primary && !r.run.Ended() {
				missing++
			}
		}
		about := primary.Info("replication")
		for field, replica := range about {
			if strings.HasPrefix(field, "slave") && strings.Contains(replica, "state=online") {
				missing--
			}
		}
		return missing == 0 && about["role"] == "master"
	})
}

func inSync(t testing.TB, servers []*RedisServer) {
	t.Helper()
	for _, r := range servers {
		eventually(t, "the replicas are in sync", func() bool {
			return r.run.Ended() || r.Info("replication")["role"] == "master" ||
				r.Info("replication")["master_link_status"] == "up"
		})
	}
}

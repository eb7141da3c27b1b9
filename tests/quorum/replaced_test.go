package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// settings is a file that server 1 reads when it starts, in addition to its command line.
type settings string

func (s settings) set(t *testing.T, lines string) {
	t.Helper()
	if err := os.WriteFile(string(s), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
}

// scene is three servers. Server 1 will lose its grant: a has x from servers 0 and 1 and never
// reaches server 2, where x is free.
type scene struct {
	*group
	t    *testing.T
	conf settings
	ways proxies
	x    *testenv.RedisServer // server 1
	copy *testenv.RedisServer // its replica, if the case asks for one
	link *testenv.TCPProxy    // from the replica to server 1
}

// A loss is one way for a server to lose a grant that it has recorded.
type loss struct {
	args   []string       // of server 1
	before func(s *scene) // before the grant is taken
	after  func(s *scene) // the server loses it
	heal   func(s *scene) // it accepts writes again, after a client has asked it
}

func must(t *testing.T, s *testenv.RedisServer, line string) {
	t.Helper()
	if reply := s.Do(line); !strings.HasPrefix(reply, "+") && !strings.HasPrefix(reply, ":") {
		t.Fatalf("%s: %s", line, reply)
	}
}

// follow makes s a replica of the server at addr, and returns when it has that server's data.
func follow(t *testing.T, s *testenv.RedisServer, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "REPLICAOF "+host+" "+port)
	for end := time.Now().Add(30 * time.Second); s.Info("replication")["master_link_status"] != "up"; time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no replica of %s: %v", addr, s.Info("replication"))
		}
	}
}

// snapshot keeps the present data of s for its next start.
func snapshot(s *scene) { must(s.t, s.x, "SAVE") }

// folder is where a server keeps its data.
func folder(s *testenv.RedisServer) string { return filepath.Dir(s.Socket) }

// restartWith restarts server 1 with settings under which it refuses writes.
func restartWith(lines string) func(*scene) {
	return func(s *scene) {
		s.conf.set(s.t, lines)
		s.x.Kill()
		s.x.Start()
	}
}

func configure(line string) func(*scene) {
	return func(s *scene) { must(s.t, s.x, "CONFIG SET "+line) }
}

// replicated gives server 1 a replica, and cuts it off before the grant is taken.
func replicated(s *scene) {
	s.copy = testenv.Redis(s.t, "--repl-diskless-sync-delay", "0")
	s.link = testenv.Proxy(s.t, s.x.Addr)
	follow(s.t, s.copy, s.link.Addr)
	for end := time.Now().Add(30 * time.Second); !strings.Contains(s.x.Info("replication")["slave0"],
		"state=online"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("no replica: %v", s.x.Info("replication"))
		}
	}
	s.link.Hole()
}

// copyFile copies a file of server from to server 1.
func copyFile(s *scene, from *testenv.RedisServer) {
	must(s.t, from, "SAVE")
	text, err := os.ReadFile(filepath.Join(folder(from), "dump.rdb"))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder(s.x), "dump.rdb"), text, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

const oom, few = "maxmemory 1\n", "min-replicas-to-write 1\n"

var losses = map[string]loss{
	"restarted with older data": {before: snapshot, after: restartWith("")},
	"restarted with older data, and full": {
		before: snapshot, after: restartWith(oom), heal: configure("maxmemory 0"),
	},
	"restarted with older data, and without replicas": {
		before: snapshot, after: restartWith(few), heal: configure("min-replicas-to-write 0"),
	},
	"restarted with another server's data, and full": {
		after: func(s *scene) { copyFile(s, s.servers[2]); restartWith(oom)(s) }, heal: configure("maxmemory 0"),
	},
	"restarted with an older log, and full": {
		args:   []string{"--appendonly", "yes"},
		before: func(s *scene) { keepLog(s) },
		after:  func(s *scene) { s.x.Kill(); oldLog(s); restartWith(oom)(s) },
		heal:   configure("maxmemory 0"),
	},
	"restarted empty, and full": {after: restartWith(oom), heal: configure("maxmemory 0")},
	"replica of another server for a moment": {after: func(s *scene) {
		follow(s.t, s.x, s.servers[2].Addr)
		must(s.t, s.x, "REPLICAOF NO ONE")
	}},
	"replica of another server, and accepts writes": {after: func(s *scene) {
		configure("replica-read-only no")(s)
		follow(s.t, s.x, s.servers[2].Addr)
	}, heal: func(s *scene) { must(s.t, s.x, "REPLICAOF NO ONE") }},
	"replica of its own replica, which was behind": {before: replicated, after: func(s *scene) {
		must(s.t, s.copy, "REPLICAOF NO ONE")
		follow(s.t, s.x, s.copy.Addr)
		must(s.t, s.x, "REPLICAOF NO ONE")
	}},
	"failover to its replica, which was behind, and back": {before: replicated, after: func(s *scene) {
		failover(s)
		must(s.t, s.x, "REPLICAOF NO ONE")
	}},
	"its replica, which was behind, in its place": {before: replicated, after: func(s *scene) {
		must(s.t, s.copy, "REPLICAOF NO ONE")
		s.x = s.copy
	}},
	"its replica, which was behind and is full, in its place": {before: replicated, after: func(s *scene) {
		must(s.t, s.copy, "REPLICAOF NO ONE")
		s.x = s.copy
		configure("maxmemory 1")(s)
	}, heal: configure("maxmemory 0")},
	"emptied":               {after: func(s *scene) { must(s.t, s.x, "FLUSHALL") }},
	"emptied, one database": {after: func(s *scene) { must(s.t, s.x, "FLUSHDB") }},
	"emptied, and full": {after: func(s *scene) { must(s.t, s.x, "FLUSHALL"); configure("maxmemory 1")(s) },
		heal: configure("maxmemory 0")},
	"another database in its place": {after: func(s *scene) { must(s.t, s.x, "SWAPDB 0 1") }},
	"another database in its place, that a client had named": {
		before: func(s *scene) {
			all := at(s.addrs())
			for i, addr := range s.addrs() {
				all[i].Dial = func(ctx context.Context) (redislock.Conn, error) {
					return rueidisconn.DialContext(ctx, "redis://"+addr+"/1", nil)
				}
			}
			b := quorum.New(all, &quorum.Config{Quarantine: s.quarantine})
			defer func() { _ = b.Close() }()
			if err := b.Declare(within(s.t)); !errors.Is(err, driver.ErrRefused) {
				s.t.Fatalf("Declare: %v; want ErrRefused", err)
			}
		},
		after: func(s *scene) { must(s.t, s.x, "SWAPDB 0 1") },
	},
	"emptied, and the scripts flushed": {after: func(s *scene) {
		must(s.t, s.x, "FLUSHALL")
		must(s.t, s.x, "SCRIPT FLUSH")
	}},
}

// TestForgottenVote: a server loses a grant in one of many ways. A client asks it at once and again
// and again. It casts no vote before the grant's lease is over, so no client gets the lock.
func TestForgottenVote(t *testing.T) {
	t.Parallel()
	for what, how := range losses {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, how.args...)
			if how.before != nil {
				how.before(s)
			}
			const ttl = time.Minute // nothing expires within the test
			s.ways[2].Hole()
			a := open(t, s.backend(s.ways.addrs()), "a", ttl)
			h := get(t, a, try("x", "a-1"))
			s.ways.each((*testenv.TCPProxy).Hole)
			// The client has asked the servers before: a new one would first look at their records.
			ways := s.proxies()
			b := open(t, s.backend(ways.addrs()), "b", ttl)
			get(t, b, try("y", "b-y"))
			how.after(s)
			if s.x != s.servers[1] {
				ways[1].Lead(s.x.Addr)
			}
			refused := func() {
				t.Helper()
				for i := range 5 {
					reply, err := b.Acquire(within(t), try("x", fmt.Sprint("b-", time.Now().UnixNano(), "-", i)))
					if err != nil && !passing(err) {
						t.Errorf("Acquire: %v", err)
					}
					if reply.Token != 0 {
						t.Fatalf("two hold it, with the tokens %d and %d", h.Token, reply.Token)
					}
				}
			}
			refused()
			if how.heal != nil {
				how.heal(s)
				refused()
			}
			b = open(t, s.backend(ways.addrs()), "c", ttl)
			refused()
			var quarantined *redislock.Newborn // its error says for how long
			if _, err := memberAt(t, s.group, s.x.Addr).Inspect(within(t), "x"); !errors.As(err, &quarantined) ||
				quarantined.Left < ttl/2 {
				t.Errorf("the server that forgot: %v; want it to stay out for most of the quarantine", err)
			}
		})
	}
}

// TestNothingForgotten: an apparent loss of data that is none costs no vote.
func TestNothingForgotten(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]func(s *scene){
		"scripts flushed": func(s *scene) { must(s.t, s.x, "SCRIPT FLUSH") },
		"a replica comes": func(s *scene) {
			was := s.x.Info("replication")["master_replid"]
			replicated(s)
			if s.x.Info("replication")["master_replid"] == was {
				s.t.Error("the server still has the replication id that it had without a replica: nothing is tried here")
			}
		},
		"data written out":     snapshot,
		"data loaded again":    func(s *scene) { must(s.t, s.x, "DEBUG RELOAD") },
		"full, and room again": func(s *scene) { configure("maxmemory 1")(s); configure("maxmemory 0")(s) },
		"its replica has left, and the backlog": func(s *scene) {
			configure("repl-backlog-ttl 1")(s)
			replicated(s)
			was := s.x.Info("replication")["master_replid"]
			s.copy.Kill()
			s.link.Refuse()
			for end := time.Now().Add(30 * time.Second); s.x.Info("replication")["master_replid"] == was; time.Sleep(
				50 * time.Millisecond) {
				if time.Now().After(end) {
					s.t.Fatal("the server keeps its backlog")
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "--enable-debug-command", "yes")
			a := open(t, s.backend(s.addrs()), "a", time.Minute)
			h := get(t, a, try("x", "a-1"))
			s.everywhere(t, "x", renewals(t, a, h)) // a majority had it
			f(s)
			if r, err := memberAt(t, s.group, s.x.Addr).Inspect(within(t), "x"); err != nil || len(r.Holders) != 1 {
				t.Errorf("it has %+v, %v; want the holder", r, err)
			}
			s.servers[0].Kill() // so that the votes of the two others are needed
			stands(t, a, 1, h)
			get(t, a, try("y", "a-2"))
		})
	}
}

func newScene(t *testing.T, args ...string) *scene {
	t.Helper()
	conf := settings(filepath.Join(t.TempDir(), "conf"))
	conf.set(t, "")
	g := &group{t: t, quarantine: time.Minute}
	for i := range 3 {
		with := []string{"--repl-diskless-sync-delay", "0"}
		if i == 1 {
			with = append(with, "--include", string(conf))
			with = append(with, args...)
		}
		g.servers = append(g.servers, testenv.Redis(t, with...))
	}
	if err := g.backend(g.addrs()).Declare(within(t)); err != nil {
		t.Fatalf("Declare: %v", err)
	}
	return &scene{group: g, t: t, conf: conf, ways: g.proxies(), x: g.servers[1]}
}

// failover promotes the replica, although it is behind. The replica is not reached through the
// proxy now, and server 1 follows it.
func failover(s *scene) {
	host, port, err := net.SplitHostPort(s.copy.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	must(s.t, s.x, "FAILOVER TO "+host+" "+port+" FORCE TIMEOUT 1")
	for end := time.Now().Add(30 * time.Second); s.x.Info("replication")["master_link_status"] != "up"; time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("no failover: %v", s.x.Info("replication"))
		}
	}
}

func keepLog(s *scene) {
	if err := os.CopyFS(filepath.Join(folder(s.x), "older"),
		os.DirFS(filepath.Join(folder(s.x), "appendonlydir"))); err != nil {
		s.t.Fatal(err)
	}
}

func oldLog(s *scene) {
	log := filepath.Join(folder(s.x), "appendonlydir")
	err := os.RemoveAll(log)
	if err == nil {
		err = os.Rename(filepath.Join(folder(s.x), "older"), log)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

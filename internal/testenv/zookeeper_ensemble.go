package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ZooKeeperEnsembleServers are ZooKeeper servers that replicate each other. Each has a proxy to
// each other, so that it can be cut off from the leader and not from its clients.
type ZooKeeperEnsembleServers struct {
	Servers []*ZooKeeperServer

	t     testing.TB
	links [][]*TCPProxy // from, to
}

// ZooKeeperEnsemble starts n servers, with settings as for ZooKeeper.
func ZooKeeperEnsemble(t testing.TB, n int, settings ...string) *ZooKeeperEnsembleServers {
	t.Helper()
	e := &ZooKeeperEnsembleServers{t: t}
	// The addresses stay reserved until the proxies listen on theirs.
	addrs, release := reserve(t, 2*n)
	quorum, election := addrs[:n], addrs[n:]
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	lines := make([][]string, n)
	for i := range n {
		lines[i] = slices.Clone(settings)
		links := make([]*TCPProxy, n)
		for j := range n {
			q := quorum[j]
			if i != j {
				// A newly elected leader does not listen immediately, and a follower takes a reset
				// connection for the leader's end.
				links[j] = newProxy(t, q, time.Second)
				q = links[j].Addr
			}
			lines[i] = append(lines[i], fmt.Sprintf("server.%d=127.0.0.1:%s:%s", j+1, port(q), port(election[j])))
		}
		e.links = append(e.links, links)
	}
	release()
	for i := range n {
		z := newZooKeeper(t, nil, lines[i])
		dir := filepath.Dir(z.argv[len(z.argv)-1])
		must(t, os.WriteFile(filepath.Join(dir, "myid"), fmt.Appendf(nil, "%d\n", i+1), 0o600))
		e.Servers = append(e.Servers, z)
	}
	for _, z := range e.Servers {
		z.launch()
	}
	for _, z := range e.Servers {
		z.await()
	}
	return e
}

// Addrs returns the addresses of all servers.
func (e *ZooKeeperEnsembleServers) Addrs() []string {
	addrs := make([]string, len(e.Servers))
	for i, z := range e.Servers {
		addrs[i] = z.Addr
	}
	return addrs
}

// URL returns the ensemble's URL, with all its servers.
func (e *ZooKeeperEnsembleServers) URL() string { return "zookeeper://" + strings.Join(e.Addrs(), ",") }

// electionLimit is how long an election may take. On a busy machine servers miss each other's signs of
// life, and it begins again.
const electionLimit = time.Minute

// Leader waits until one of the servers leads, and returns its index. It does not ask servers in
// except, which may be paused.
func (e *ZooKeeperEnsembleServers) Leader(except ...int) int {
	e.t.Helper()
	skip := map[int]bool{}
	for _, i := range except {
		skip[i] = true
	}
	for end := time.Now().Add(electionLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for i, z := range e.Servers {
			if skip[i] {
				continue
			}
			if mode, err := z.mode(); err == nil && mode == "leader" {
				return i
			}
		}
	}
	e.t.Fatal("none of the servers leads")
	return -1
}

// Whole reports whether one server leads and all others follow. This may change at any time.
func (e *ZooKeeperEnsembleServers) Whole() bool {
	modes := map[string]int{}
	for _, z := range e.Servers {
		mode, err := z.mode()
		if err != nil {
			return false
		}
		modes[mode]++
	}
	return modes["leader"] == 1 && modes["follower"] == len(e.Servers)-1
}

// Followers waits until at least one of the servers follows, and returns the indexes of all that do.
func (e *ZooKeeperEnsembleServers) Followers() []int {
	e.t.Helper()
	var errs []error
	for end := time.Now().Add(electionLimit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var all []int
		errs = nil
		for i, z := range e.Servers {
			mode, err := z.mode()
			if err == nil && mode == "follower" {
				all = append(all, i)
			}
			errs = append(errs, err)
		}
		if len(all) > 0 {
			return all
		}
	}
	e.t.Fatalf("none of the servers follows: %v", errors.Join(errs...))
	return nil
}

// Isolate cuts server i, a follower, off from any leader, silently; its clients reach it.
func (e *ZooKeeperEnsembleServers) Isolate(i int) { e.each(i, (*TCPProxy).Hole) }

// Join ends Isolate.
func (e *ZooKeeperEnsembleServers) Join(i int) { e.each(i, (*TCPProxy).Heal) }

func (e *ZooKeeperEnsembleServers) each(i int, f func(*TCPProxy)) {
	for _, p := range e.links[i] {
		if p != nil {
			f(p)
		}
	}
}

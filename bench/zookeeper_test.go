package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// zooKeeperBed is a testbed with so many servers.
func zooKeeperTestbed(t *testing.T, servers int) *testbed {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts ZooKeeper servers")
	}
	if err := zooKeeperMissing(); err != nil {
		t.Skip(err)
	}
	b := &testbed{dir: t.TempDir(), duration: duration()}
	if err := b.prepare(t.Context(), scenario{servers: servers}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.noZooKeeper)
	return b
}

// plausible checks the known bounds of a library's figures. The requests of a pair are exact. Those
// of contenders are read during the load, whenever this machine gets to it: they only show a count.
func plausible(t *testing.T, sc scenario, s subject, m metrics) {
	t.Helper()
	for _, c := range sc.columns {
		if v, ok := m[c.key]; !ok || v < 0 || v == 0 && !few(m) && c.key != "violations" && c.key != "self" {
			t.Errorf("%s: %v", c.head, v)
		}
	}
	if m["violations"] != 0 || m["p99"] < m["p50"] {
		t.Errorf("%v", m)
	}
	if s.name == oursZooKeeper {
		return
	}
	pair := strings.HasSuffix(sc.name, "/pair")
	if pair && s.name != curatorName && !about(m, "calls", 3) || !pair && !few(m) && m["calls"] < 0.5 {
		t.Errorf("%v requests", m["calls"])
	}
}

// TestZooKeeper runs the smallest of each kind of scenario: on one server, and at full size with
// Curator and on three.
func TestZooKeeper(t *testing.T) {
	sizes := []int{1}
	if testenv.Deep() {
		sizes = append(sizes, 3)
	}
	for _, servers := range sizes {
		b := zooKeeperTestbed(t, servers)
		if len(b.zk.addrs) != servers || slices.Index(b.zk.addrs, b.leader()) != servers-1 || b.zk.version == "" {
			t.Fatalf("%v, leader %s, version %q", b.zk.addrs, b.leader(), b.zk.version)
		}
		if servers == 1 && testenv.Deep() && javaMissing() == nil {
			var err error
			if b.java, err = buildJava(t.Context(), t.TempDir()); err != nil {
				t.Fatal(err)
			}
		}
		for _, sc := range zooKeeperScenarios() {
			if sc.servers != servers || !strings.HasSuffix(sc.name, "/pair") && !strings.HasSuffix(sc.name, "/2") &&
				!strings.HasSuffix(sc.name, "/10") {
				continue
			}
			for _, s := range sc.subjects {
				if s.name == curatorName && !testenv.Deep() {
					continue
				}
				t.Run(sc.name+"/"+s.name, func(t *testing.T) {
					if s.name == curatorName && b.java.classPath == "" {
						t.Skip(cmp.Or(javaMissing(), errors.New("one more Java process adds nothing here")))
					}
					m, err := measured(b, func() (metrics, error) { return s.run(t.Context(), b) })
					if err != nil {
						t.Fatal(err)
					}
					plausible(t, sc, s, m)
				})
			}
		}
	}
}

// leader returns the address of the server that leads, or is alone.
func (b *testbed) leader() string {
	i := slices.IndexFunc(b.zk.servers, func(z *zooKeeper) bool { return z.mode != "follower" })
	return b.zk.servers[i].addr
}

// TestZooKeeperCounts: the server counts exactly the clients' requests, without the queries for the
// count.
func TestZooKeeperCounts(t *testing.T) {
	b := zooKeeperTestbed(t, 1)
	c, err := goZooKeeper.open(t.Context(), b.site(0, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	k := c.contender("counted")
	var reads [3]load
	for i := range reads {
		if reads[i], err = b.zk.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		for range 50 {
			if err := k.lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := k.unlock(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The first lock creates its parents: a failing create, a query and a create for each of two.
	if n := reads[1].commands - reads[0].commands; n < 150 || n > 160 || reads[1].bytes <= reads[0].bytes {
		t.Errorf("50 pairs: %d requests, %d bytes", n, reads[1].bytes-reads[0].bytes)
	}
	if n := reads[2].commands - reads[1].commands; n > 1 { // a ping
		t.Errorf("between two readings: %d requests", n)
	}
}

// TestZooKeeperStopped: a measurement without its servers fails, and names the missing part.
func TestZooKeeperStopped(t *testing.T) {
	b := zooKeeperTestbed(t, 1)
	b.zk.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.read(ctx, nil); err == nil {
		t.Error("figures of a stopped server")
	}
	if _, err := goZooKeeper.open(ctx, b.site(0, nil)); err == nil || !strings.Contains(err.Error(), "no session") {
		t.Errorf("a session at a stopped server: %v", err)
	}
	if _, err := runCurator(ctx, b, 1, 1); err == nil || !strings.Contains(err.Error(), "omitted") {
		t.Errorf("Curator that was not built: %v", err)
	}
	b.java.classPath = "nowhere"
	if _, err := runCurator(ctx, b, 1, 1); err == nil {
		t.Error("Curator that cannot start gave figures")
	}
}

func TestJavaFigures(t *testing.T) {
	start := time.Now()
	before, after := window{start: start}, window{start: start.Add(2 * time.Second), load: load{commands: 20}}
	read := func(text string) (metrics, error) {
		var f javaFigures
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		return f.metrics(before, after)
	}
	m, err := read(`{"members":[
		{"n":3,"self":1,"longest":70,"handovers":[10,20],"waits":[5,6,7],"pairs":[]},
		{"n":1,"self":0,"longest":90,"handovers":[30],"waits":[8],"pairs":[]}],"violations":2,"cpu":400,"error":""}`)
	if err != nil {
		t.Fatal(err)
	}
	want := metrics{"n": 4, "p50": 20, "p99": 30, "self": 25, "jain": 0.8, "waitmax": 90, "waitp99": 8,
		"violations": 2, "cpu": 100, "calls": 5, "persec": 2}
	for key, want := range want {
		if m[key] != want {
			t.Errorf("%s: %v, want %v", key, m[key], want)
		}
	}
	m, err = read(
		`{"members":[{"n":2,"self":2,"longest":9,"handovers":[],"waits":[8,9],"pairs":[40,60]}],"violations":0,"cpu":2,"error":""}`)
	if err != nil || m["p50"] != 60 || m["calls"] != 10 {
		t.Errorf("pairs: %v, %v", m, err)
	}
	if m, err := read(`{"members":[{"n":0}]}`); err == nil {
		t.Errorf("figures without contenders: %v", m)
	}
}

func TestProcessCPU(t *testing.T) {
	before, err := processCPU(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	start := cpuTime()
	for cpuTime()-start < 200*time.Millisecond {
	}
	after, err := processCPU(os.Getpid())
	if got := after - before; err != nil || got < 190*time.Millisecond || got > time.Second {
		t.Errorf("200 ms of work are %v, %v", got, err)
	}
	for _, pid := range []int{0, 1 << 22, 1 << 30} {
		if _, err := processCPU(pid); err == nil {
			t.Errorf("CPU of the missing process %d", pid)
		}
	}
}

func TestChoose(t *testing.T) {
	all, none := regexp.MustCompile(""), regexp.MustCompile("^no-such$")
	for store, want := range map[string]string{"redis": "ping", "sqlite": "sqlite/pair", "zookeeper": "zk1/pair"} {
		if store == "zookeeper" && zooKeeperMissing() != nil {
			continue
		}
		chosen, err := settings{scenarios: all, libraries: none, store: store}.choose(t.Context(),
			&testbed{}, &report{})
		if err != nil || chosen[0].name != want || slices.ContainsFunc(chosen,
			func(sc scenario) bool { return sc.store != store && sc.store != "any" }) {
			t.Errorf("%s: %v, %v", store, chosen, err)
		}
	}
	defer func(jars []string) { zooKeeperJars = jars }(zooKeeperJars)
	zooKeeperJars = []string{"/dev/null/zookeeper.jar"}
	if _, err := (settings{scenarios: all, libraries: all, store: "zookeeper"}).
		choose(t.Context(), &testbed{}, &report{}); err == nil {
		t.Error("ZooKeeper is missing, and was chosen")
	}
	chosen, err := settings{scenarios: all, libraries: none, store: "all"}.choose(t.Context(), &testbed{}, &report{})
	if err != nil || len(chosen) == 0 || slices.ContainsFunc(chosen,
		func(sc scenario) bool { return sc.store == "zookeeper" }) {
		t.Errorf("ZooKeeper is missing: %v, %v", chosen, err)
	}
}

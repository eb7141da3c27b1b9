//go:build unix

package main_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestZooKeeperURLs uses one server under two names as the list of servers.
func TestZooKeeperURLs(t *testing.T) {
	b := newBench(t)
	addr := zooKeeper(t).Addr
	zooKeeperURLs(b, []string{addr, strings.Replace(addr, "127.0.0.1", "localhost", 1)})
}

// TestZooKeeperEnsemble uses one ensemble for all tests that need one. The death of its leader
// comes last.
func TestZooKeeperEnsemble(t *testing.T) {
	t.Parallel()
	e := testenv.ZooKeeperEnsemble(t, 3, longSessions, "-Dzookeeper.forceSync=yes")
	for _, c := range []struct {
		name string
		f    func(*bench, *testenv.ZooKeeperEnsembleServers)
	}{{"urls", func(b *bench, e *testenv.ZooKeeperEnsembleServers) { zooKeeperURLs(b, e.Addrs()) }},
		{"doctor", doctorEnsemble}, {"the leader dies", zooKeeperLeaderDies}} {
		t.Run(c.name, func(t *testing.T) { c.f(newSerialBench(t), e) })
	}
}

func zooKeeperURLs(b *bench, addrs []string) {
	t := b.T
	hosts := strings.Join(addrs, ",")
	// The private folder comes last: while it exists, no other user may list the root.
	for _, url := range []string{
		"zookeeper://" + hosts, "zk://" + hosts + "/app/locks?session=30s", "zk://" + hosts + "//",
		"zk://locker:c4nary@" + hosts + "/private?acl=private",
	} {
		b := &bench{t, b.dir, append(b.env, "HOLDFAST_URL="+url)}
		b.want(7, "run", "a", "--", "sh", "-c", "exit 7")
		// The rest runs inside, under the lock. With its servers in another order, the store is the
		// same.
		turned := strings.Replace(url, hosts, strings.Join(append(addrs[1:len(addrs):len(addrs)], addrs[0]), ","), 1)
		out, stderr := b.want(0, "run", "--note", "outer", "a", "--", "env", "HOLDFAST_URL="+turned, "sh", "-c",
			`$H run -n a -- true; echo busy $?; $H run a -- true; echo nested $?; $H ls -o name; $H info -o wide a`)
		for _, want := range []string{"busy 75\n", "nested 64\n", "\na\n", "outer"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in %q (%s)", url, want, out, stderr)
			}
		}
		if strings.Contains(out+stderr, "c4nary") {
			t.Errorf("the password: %s", out+stderr)
		}
	}
	private := "HOLDFAST_URL=zk://locker:c4nary@" + hosts + "/private?acl=private"
	// While a lock is held, its folders exist and are closed to others.
	b.env = append(b.env, private)
	b.stay("holder", "z")
	b.file("holder")
	b.env[len(b.env)-1] = strings.Replace(private, "c4nary", "wr0ng", 1)
	if _, stderr := b.want(77, "run", "a", "--", "true"); strings.Contains(stderr, "wr0ng") ||
		!strings.Contains(stderr, "not permitted") {
		t.Error(stderr)
	}
	b.want(77, "ls")
	b.env[len(b.env)-1] = private
	// The URL for the command names the store, but has no password.
	out, _ := b.want(0, "run", "a", "--", "sh", "-c", "echo $HOLDFAST_URL; HOLDFAST_SECRETS= HOLDFAST_HELD= $H run -n b -- true; echo $?")
	if want := "zk://locker@" + hosts + "/private?acl=private\n77\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	b.env[len(b.env)-1] = "HOLDFAST_URL=zk://locker:c4nary@" + hosts + "/private?acl=all"
	if _, stderr := b.want(78, "run", "a", "--", "true"); strings.Contains(stderr, "c4nary") ||
		!strings.Contains(stderr, "acl=all: it must be readable or private") {
		t.Error(stderr)
	}
}

func TestZooKeeperTLS(t *testing.T) {
	b := newBench(t)
	url := testenv.ZooKeeperTLS(t, longSessions).URL()
	b.want(0, "--store", url, "run", "a", "--", "true")
	// Without a client certificate, and without trust in the server's certificate.
	var late []*process // in parallel: each takes some time to give up
	for _, less := range []string{url[:strings.Index(url, "&cert=")], url[:strings.Index(url, "?")]} {
		late = append(late, b.start("--store", less, "--ttl", "1s", "run", "a", "--", "true"))
	}
	for _, p := range late {
		if code := p.code(); code != 69 {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
	}
}

// The nodes are those of Curator's recipes: a mutex, a reader, a writer, a semaphore's permit.
func TestZooKeeperNodes(t *testing.T) {
	b := newBench(t)
	z, folder := zooKeeper(t), fmt.Sprint("/own", serial.Add(1))
	b.env = append(b.env, "HOLDFAST_URL="+z.URL()+folder)
	all := []struct{ folder, node, flags string }{
		{"a", "lock", ""}, {"b", "__READ__", "-s"}, {"c", "__WRIT__", "-x"}, {"d/leases", "lease", "--limit=2"},
		{"e", "lock", ""},
	}
	for i, c := range all[:4] {
		file := fmt.Sprint("holder", i)
		name, _, _ := strings.Cut(c.folder, "/")
		b.stay(file, strings.Fields(c.flags+" "+name)...)
		b.file(file)
	}
	b.start("elect", "e", "--", "sh", "-c", "echo yes >$D/elected; exec sleep 1000")
	b.file("elected")
	nodes := strings.Join(z.Tree(folder), "\n")
	for _, c := range all {
		want := regexp.MustCompile(`(?m)^` + folder + "/" + c.folder + `/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-` +
			c.node + `-?0000000000$`)
		if len(want.FindAllString(nodes, -1)) != 1 {
			t.Errorf("no node %s in %s: %s", want, c.folder, nodes)
		}
	}
}

// A name at two stores is two locks: the command of one may take the other.
func TestZooKeeperInsideAnother(t *testing.T) {
	b := newBench(t)
	url := zooKeeperURL(t)
	b.want(0, "run", "a", "--", binary, "--store", url, "run", "-n", "a", "--", binary, "--store", url+"/other", "run",
		"-n", "a", "--", "true")
	b.want(64, "--store", url, "run", "a", "--", "env", "HOLDFAST_URL="+url, binary, "run", "a", "--", "true")
}

// A waiter shows the holder, and -w bounds its wait.
func TestZooKeeperWaiting(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "HOLDFAST_URL="+zooKeeperURL(t))
	holder := b.stay("holder", "--note", "release 12", "deploy/prod")
	b.file("holder")
	if _, stderr := b.want(75, "run", "-w", "2s", "deploy/prod", "--", "touch", "ran"); !strings.Contains(stderr,
		`"release 12"`) {
		t.Error(stderr)
	}
	first := b.stay("first", "deploy/prod")
	b.waiting("deploy/prod", 1)
	second := b.start("run", "deploy/prod", "--", "true")
	line := regexp.MustCompile(
		`(?m)^waiting for deploy/prod: 1 ahead · held by \S+ "sh" for \d+s · lease 15s · "release 12"$`)
	b.until("a message", func() bool { return line.MatchString(second.err.String()) })
	holder.end()
	b.file("first")
	first.end()
	if code := second.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, second.err.String())
	}
	b.none("ran")
	// A waiter that gives up leaves no place in the queue behind.
	holder = b.stay("again", "deploy/prod")
	b.file("again")
	waiter := b.start("run", "deploy/prod", "--", "true")
	b.waiting("deploy/prod", 1)
	waiter.end()
	b.waiting("deploy/prod", 0)
	time.Sleep(time.Second)
	if _, stderr := b.want(75, "run", "-n", "deploy/prod", "--",
		"true"); !regexp.MustCompile(`held by \S+ "sh" for [1-9]\d*s`).MatchString(stderr) {
		t.Error(stderr)
	}
	holder.end()
}

// If the store is gone or silent, the command ends before its lock expires.
func TestZooKeeperGoesAway(t *testing.T) {
	harms := map[string]func(*testenv.ZooKeeperServer, *testenv.TCPProxy){
		"refused": func(_ *testenv.ZooKeeperServer, p *testenv.TCPProxy) { p.Refuse() },
		"cut":     func(_ *testenv.ZooKeeperServer, p *testenv.TCPProxy) { p.Hole() },
	}
	if testenv.Deep() { // for clients these are like the other two
		harms["killed"] = func(z *testenv.ZooKeeperServer, _ *testenv.TCPProxy) { z.Kill() }
		harms["frozen"] = func(z *testenv.ZooKeeperServer, _ *testenv.TCPProxy) { z.Pause() }
	}
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			z := zooKeeper
			if name == "killed" || name == "frozen" {
				z = func(t testing.TB) *testenv.ZooKeeperServer { return testenv.ZooKeeper(t) }
			}
			server := z(t)
			p := testenv.Proxy(t, server.Addr)
			b.env = append(b.env, "HOLDFAST_URL=zookeeper://"+p.Addr+fmt.Sprint("/own", serial.Add(1), "?session=8s"))
			run := b.start("run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
			child := b.pid("ready")
			harm(server, p)
			if code := run.code(); code != 76 || running(child) {
				t.Errorf("exit code %d, %v: %s", code, running(child), run.err.String())
			}
			late := []*process{b.start("run", "a", "--", "true"), b.start("ls")}
			for _, p := range late {
				if code := p.code(); code != 69 {
					t.Errorf("%q: exit code %d: %s", p.Args[1:], code, p.err.String())
				}
			}
		})
	}
}

// After the death of the leader, locks whose sessions outlive the election are still held.
func zooKeeperLeaderDies(b *bench, e *testenv.ZooKeeperEnsembleServers) {
	t := b.T
	b.env = append(b.env, "HOLDFAST_URL="+e.URL()+"/survives?session=20s")
	holder := b.start("run", "a", "--", "sh", "-c",
		"echo $HOLDFAST_TOKEN >$D/holder; until [ -e $D/end ]; do sleep 0.05; done; exit 3")
	token := b.file("holder")
	b.stay("next", "a")
	b.waiting("a", 1)
	e.Servers[e.Leader()].Kill()
	e.Leader()
	b.waiting("a", 1)
	if now := b.token("a"); now != token {
		t.Errorf("the holder's token is %s now, and was %s", now, token)
	}
	b.none("next")
	b.touch("end")
	if code := holder.code(); code != 3 {
		t.Errorf("exit code %d: %s", code, holder.err.String())
	}
	b.file("next")
}

// The lock of a killed holder is handed over when its session has expired; its command has ended.
func TestZooKeeperKilledHolder(t *testing.T) {
	b := newBench(t)
	url := zooKeeperURL(t)
	b.env = append(b.env, "HOLDFAST_URL="+url+"?session=20s")
	p := b.start("--store", url+"?session=8s", "run", "a", "--", "sh", "-c",
		"sleep 1000 & echo $! >$D/inner; echo $$ >$D/ready; wait")
	child, inner := b.pid("ready"), b.pid("inner")
	p.signal(syscall.SIGKILL)
	b.want(0, "run", "-w", "40", "a", "--", "true")
	b.until("the command ends", func() bool { return !running(child) && !running(inner) })
}

// A holder that was stopped for longer than its session has lost the lock when it continues.
func TestZooKeeperStoppedHolder(t *testing.T) {
	b := newBench(t)
	url := zooKeeperURL(t)
	b.env = append(b.env, "HOLDFAST_URL="+url+"?session=20s")
	p := b.prepare("--store", url+"?session=5s", "run", "a", "--", "sh", "-c",
		"echo $$ >$D/ready; while :; do sleep 0.05; done")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin()
	child := b.pid("ready")
	p.signal(syscall.SIGSTOP)
	b.want(0, "run", "-w", "20", "a", "--", "true")
	p.signal(syscall.SIGCONT)
	if code := p.code(); code != 76 || running(child) {
		t.Errorf("exit code %d, %v: %s", code, running(child), p.err.String())
	}
}

// The session has the length of --ttl, within the limits of the servers; ?session= overrides --ttl.
func TestZooKeeperSession(t *testing.T) {
	b := newBench(t)
	url := zooKeeperURL(t)
	for _, c := range []struct{ url, ttl, want string }{
		{url, "15s", "15s"}, {url, "3m", "40s"}, {url + "?session=6s", "15s", "6s"},
	} {
		b := &bench{t, b.dir, append(b.env, "HOLDFAST_URL="+c.url)}
		out, _ := b.want(0, "--ttl", c.ttl, "run", "a", "--", "sh", "-c", "$H info -o wide a")
		if !regexp.MustCompile(`(?m)\s+\d+s\s+` + c.want + `\s`).MatchString(out) {
			t.Errorf("--ttl %s on %s: want a lease of %s: %s", c.ttl, c.url, c.want, out)
		}
	}
}

func (b *bench) touch(file string) {
	b.Helper()
	if err := os.WriteFile(b.dir+"/"+file, nil, 0o600); err != nil {
		b.Fatal(err)
	}
}

// A leader that cannot reach the servers for long keeps campaigning.
func TestZooKeeperElectRidesOutAnOutage(t *testing.T) {
	b := newBench(t)
	away := testenv.Proxy(t, zooKeeper(t).Addr)
	b.env = append(b.env, "HOLDFAST_URL=zookeeper://"+away.Addr+fmt.Sprint("/own", serial.Add(1), "?session=2s"))
	p := b.candidate(2*time.Second, "one")
	first, child := b.term("one", 1)
	away.Refuse()
	b.until("the command ends", func() bool { return !running(child) })
	b.until("a message about it", func() bool { return strings.Contains(p.err.String(), "; still campaigning\n") })
	time.Sleep(time.Second) // further campaigns fail silently: there is no event to wait for
	away.Heal()
	if second, _ := b.term("one", 2); second <= first {
		t.Errorf("term %d after %d", second, first)
	}
	p.end()
}

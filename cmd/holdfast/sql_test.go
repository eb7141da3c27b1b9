//go:build unix

package main_test

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// initialise creates the tables at url, and makes it the store of the test.
func (b *bench) initialise(url string) {
	b.Helper()
	b.env = append(b.env, "HOLDFAST_URL="+url)
	if out, _ := b.want(0, "init"); !strings.HasPrefix(out, "the tables are ready: ") {
		b.Error(out)
	}
}

// at returns b with another store.
func (b *bench) at(url string) *bench {
	env := append([]string{}, b.env...)
	return &bench{b.T, b.dir, append(env, "HOLDFAST_URL="+url)}
}

// works takes a lock, which ls shows meanwhile.
func (b *bench) works(url string) {
	b.Helper()
	b = b.at(url)
	b.env = append(b.env, "U="+url)
	out, stderr := b.want(7, "run", "-n", "w", "--", "sh", "-c", `$H --store "$U" ls -o name; exit 7`)
	if out != "w\n" || stderr != "" {
		b.Errorf("%s: %q, %q", url, out, stderr)
	}
}

// locks uses each kind of lock in a command that holds another lock.
func (b *bench) locks(url string) {
	b.Helper()
	b = b.at(url)
	// HOLDFAST_URL has no password in the commands, so U has the whole URL.
	b.env = append(b.env, "U="+url)
	out, stderr := b.want(0, "run", "--note", "outer", "a", "--", "sh", "-c", `export HOLDFAST_URL="$U"
		echo token $HOLDFAST_TOKEN; $H run -n a -- true; echo busy $?; $H run a -- true; echo nested $?; $H ls -o name; $H info -o wide a
		$H run -n -s r -- sh -c '$H --store "$U" run -n -s r -- $H --store "$U" run -n r -- true'; echo shared $?
		$H run -n --limit 2 s -- sh -c '$H --store "$U" sem limit s 1; $H --store "$U" run -n --limit 1 s -- true'; echo permits $?
		$H --store "$U" sem limit s --clear
		$H latch set l 1; $H latch down l; $H latch wait l; $H latch rm l
		$H elect e -- $H --store "$U" leader e
		$H run --also c --every 1h d -- true; $H run --every 1h d -- true; echo tick $?
		$H run -n z -- sh -c '$H --store "$U" break z --token $HOLDFAST_TOKEN'; echo broken $?`)
	for _, want := range []string{
		"busy 75\n", "nested 64\n", "\na\n", "outer", "shared 75\n", "s: the limit is now 1\n", "permits 75\n",
		"s: no limit is set now\n",
		"made: l, 1 left\n0\nremoved: l\n",
		" leads since ", "tick 75\n", "broken: z, token ", "broken 76\n",
	} {
		if !strings.Contains(out, want) {
			b.Errorf("%s: %q is not in %q (%s)", url, want, out, stderr)
		}
	}
	if m := regexp.MustCompile(`^token (\d+)\n`).FindStringSubmatch(out); m == nil ||
		!regexp.MustCompile(`(?m)^token +`+m[1]+`$`).MatchString(out) {
		b.Errorf("the token of the environment is not that of info: %s", out)
	}
	for _, secret := range []string{"c4nary", "[mysql]"} {
		if strings.Contains(out+stderr, secret) {
			b.Errorf("%q: %s", secret, out+stderr)
		}
	}
}

// queue has two waiters. Each gets the lock in its turn, and none reports that it polls.
func (b *bench) queue(url string) {
	b.Helper()
	b = b.at(url)
	holder := b.stay("holder", "--note", "release 12", "deploy/prod")
	b.file("holder")
	if _, stderr := b.want(75, "run", "-w", "2s", "deploy/prod", "--", "touch", "ran"); !strings.Contains(stderr,
		`"release 12"`) {
		b.Error(stderr)
	}
	first := b.stay("first", "deploy/prod")
	b.waiting("deploy/prod", 1)
	second := b.start("run", "deploy/prod", "--", "true")
	line := regexp.MustCompile(
		`(?m)^waiting for deploy/prod: 1 ahead · held by \S+ "sh" for \d+s · lease \d+s · "release 12"$`)
	b.until("a message", func() bool { return line.MatchString(second.err.String()) })
	// The leases have most of their 15 s left, so the hand-over is no expiry.
	holder.end()
	b.file("first")
	first.end()
	if code := second.code(); code != 0 {
		b.Errorf("exit code %d: %s", code, second.err.String())
	}
	b.none("ran")
	for _, name := range []string{"holder", "first"} {
		if err := os.Remove(b.dir + "/" + name); err != nil {
			b.Error(err)
		}
	}
	b.quietly("run", "deploy/prod", "--", "true")
}

// quietly runs holdfast and expects nothing on standard error.
func (b *bench) quietly(args ...string) {
	b.Helper()
	if _, stderr := b.want(0, args...); stderr != "" {
		b.Errorf("%q: %s", args, stderr)
	}
}

// passedOn checks the URL that a command gets: it names the store, but has no password.
func (b *bench) passedOn(url, want string) {
	b.Helper()
	out, _ := b.at(url).want(0, "run", "a", "--", "sh", "-c",
		"echo $HOLDFAST_URL; HOLDFAST_SECRETS= HOLDFAST_HELD= $H run -n b -- true; echo $?")
	if want += "\n77\n"; out != want {
		b.Errorf("%q, want %q", out, want)
	}
}

// without checks the message about a store without tables.
func (b *bench) without(url string) {
	b.Helper()
	b = b.at(url)
	for _, args := range [][]string{{"run", "a", "--", "true"}, {"ls"}, {"info", "a"}, {"latch", "set", "a", "1"},
		{"leader", "a"}} {
		if _, stderr := b.want(77, args...); !strings.Contains(stderr, "holdfast init --store URL") ||
			strings.Count(stderr, "\n") != 1 {
			b.Errorf("%q: %s", args, stderr)
		}
	}
}

// outage checks what a holder, a waiter and later commands do when harm disables the store.
func (b *bench) outage(url string, harm func()) {
	b.Helper()
	b = b.at(url)
	run := b.start("--ttl", "5s", "run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
	child := b.pid("ready")
	waiter := b.start("--ttl", "5s", "run", "a", "--", "touch", "ran")
	b.waiting("a", 1)
	harm()
	if code := run.code(); code != 76 || running(child) {
		b.Errorf("exit code %d, %v: %s", code, running(child), run.err.String())
	}
	if said := run.err.String(); !strings.Contains(said, "in time: store unavailable: ") &&
		!strings.Contains(said, "in time: outcome unknown: ") {
		b.Errorf("no reason for the missing renewal: %s", said)
	}
	if code := waiter.code(); code != 69 {
		b.Errorf("the waiter: exit code %d: %s", code, waiter.err.String())
	}
	b.none("ran")
	var late []*process // in parallel: each takes some time to give up
	for _, args := range [][]string{{"run", "a", "--", "true"}, {"ls"}, {"init"}} {
		late = append(late, b.start(append([]string{"--ttl", "1s"}, args...)...))
	}
	for _, p := range late {
		if code := p.code(); code != 69 {
			b.Errorf("%q: exit code %d", p.Args[1:], code)
		}
		stderr := p.err.String()
		_, last, noticed := strings.Cut(stderr, "s at the latest\n")
		if !noticed {
			last = stderr
		}
		if strings.Count(last, "\n") != 1 || strings.Contains(stderr, "[mysql]") {
			b.Errorf("%q: %s", p.Args[1:], stderr)
		}
	}
}

// harms are the ways to disable a server: its proxy refuses connections, as if it were killed, or
// is silent, as if it were cut off. At full size the server is also killed.
func harms() map[string]func(interface{ Kill() }, *testenv.TCPProxy) {
	all := map[string]func(interface{ Kill() }, *testenv.TCPProxy){
		"refused": func(_ interface{ Kill() }, p *testenv.TCPProxy) { p.Refuse() },
		"cut":     func(_ interface{ Kill() }, p *testenv.TCPProxy) { p.Hole() },
	}
	if testenv.Deep() {
		all["killed"] = func(s interface{ Kill() }, _ *testenv.TCPProxy) { s.Kill() }
	}
	return all
}

// holders has one holder killed, and one stopped for longer than its lease. The lock is handed over
// when the lease has expired, and neither command runs on. A lease must not expire before the signal.
func (b *bench) holders(url string) {
	b.Helper()
	b = b.at(url)
	p := b.start("--ttl", "4s", "run", "k", "--", "sh", "-c", "sleep 1000 & echo $! >$D/inner; echo $$ >$D/killed; wait")
	child, inner := b.pid("killed"), b.pid("inner")
	p.signal(syscall.SIGKILL)
	b.want(0, "run", "-w", "20", "k", "--", "true")
	b.until("the command ends", func() bool { return !running(child) && !running(inner) })

	p = b.prepare("--ttl", "4s", "run", "k", "--", "sh", "-c", "echo $$ >$D/stopped; while :; do sleep 0.05; done")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin()
	child = b.pid("stopped")
	p.signal(syscall.SIGSTOP)
	b.want(0, "run", "-w", "20", "k", "--", "true")
	p.signal(syscall.SIGCONT)
	if code := p.code(); code != 76 || running(child) {
		b.Errorf("exit code %d, %v: %s", code, running(child), p.err.String())
	}
}

func TestInitElsewhere(t *testing.T) {
	b := newBench(t)
	const nothing = "this store needs no tables: there is nothing to do\n"
	for _, url := range []string{"", "sqlite:x.db", "redis://127.0.0.1:1", "zookeeper://127.0.0.1:1", "memory:"} {
		b := b.at(url)
		if out, stderr := b.want(0, "init"); out != nothing || stderr != "" {
			t.Errorf("%s: %q, %q", url, out, stderr)
		}
		if out, stderr := b.want(0, "init", "--print"); out != "" || stderr != "holdfast: "+nothing {
			t.Errorf("%s: %q, %q", url, out, stderr)
		}
	}
	b.none("x.db")
	b.none("state/holdfast/locks.db")
	b.want(78, "--store", "etcd://h", "init")
	b.want(78, "--store", "mysql://h", "init", "--print")
	b.want(64, "init", "now")
}

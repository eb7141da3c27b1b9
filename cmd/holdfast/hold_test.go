//go:build unix

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A hold keeps a lock over several commands, until release. Only one release ends it.
func TestHold(t *testing.T) {
	onStores(t, "zookeeper", func(b *bench) {
		b = b.runtimeDir()
		v := b.keep("--note", "build 42", "--label", "job=7", "a")
		pid := keeperOf(b, v)
		out, _ := b.want(0, "check", "a")
		if !strings.Contains(out, "a is held, token "+v["HOLDFAST_TOKEN"]+", for at least ") {
			b.Error(out)
		}
		if token := b.token("a"); token != v["HOLDFAST_TOKEN"] {
			b.Errorf("the store has token %s, hold has printed %s", token, v["HOLDFAST_TOKEN"])
		}
		if out, _ := b.want(0, "info", "a"); !strings.Contains(out, "build 42") || !strings.Contains(out, "holdfast hold") {
			b.Error(out)
		}
		b.want(75, "run", "-n", "a", "--", "true")
		b.want(75, "hold", "--max-hold", "1m", "-n", "a")
		in := b.with(v.env()...)
		in.want(0, "check")
		// A command under the hold would wait for itself.
		in.want(64, "run", "a", "--", "true")
		in.want(64, "hold", "--max-hold", "1m", "a")
		in.want(0, "run", "b", "--", "true")
		waiter := b.start("run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN >$D/next")
		b.waiting("a", 1)
		if out, _ := b.want(0, "release", "a"); out != "released: a, token "+v["HOLDFAST_TOKEN"]+"\n" {
			b.Error(out)
		}
		if code := waiter.code(); code != 0 || !later(b.file("next"), v["HOLDFAST_TOKEN"]) {
			b.Errorf("exit code %d, token %s after %s", code, b.file("next"), v["HOLDFAST_TOKEN"])
		}
		b.want(76, "release", "a")
		in.want(76, "release")
		b.want(76, "check", "a")
		b.ends(pid)
		b.want(0, "run", "-n", "a", "--", "true")
	})
}

// One of many releases at once ends the hold, while the lock is being renewed.
func TestHoldReleasedAtOnce(t *testing.T) {
	b := newBench(t).runtimeDir()
	b.env = append(b.env, "HOLDFAST_URL="+testenv.Redis(t).URL())
	tooLate := regexp.MustCompile(`a is not held any more: .*\((expired|unreachable)\)`)
	good := 0
	b.until("three releases", func() bool {
		b.keep("--ttl", "1s", "a")
		var all []*process
		for range 6 {
			all = append(all, b.start("release", "a"))
		}
		codes := map[int]int{}
		expired := false
		for _, p := range all {
			codes[p.code()]++
			expired = expired || tooLate.MatchString(p.err.String())
		}
		switch {
		case codes[0] == 0 && codes[76] == 6 && expired: // a stall has outlasted the short lease
			return false
		case codes[0] != 1 || codes[76] != 5:
			t.Fatal(codes)
		}
		b.want(0, "run", "-n", "a", "--", "true")
		good++
		return good == 3
	})
}

// A keeper that is killed releases nothing. Later commands learn that, and the store frees the name
// when the lease expires.
func TestHoldKilled(t *testing.T) {
	onStores(t, "mysql", func(b *bench) {
		b = b.runtimeDir()
		v := b.keep("--ttl", "2s", "a")
		pid := keeperOf(b, v)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		b.ends(pid)
		for _, args := range [][]string{{"check", "a"}, {"check"}, {"release"}, {"release", "a"}} {
			if _, stderr := b.with(v.env()...).want(76, args...); !strings.Contains(stderr, "not held") {
				b.Error(stderr)
			}
		}
		out, _ := b.want(0, "run", "a", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
		if !later(strings.TrimSpace(out), v["HOLDFAST_TOKEN"]) {
			b.Errorf("token %s after %s", out, v["HOLDFAST_TOKEN"])
		}
		if left, _ := filepath.Glob(filepath.Dir(v["HOLDFAST_HOLD"]) + "/*"); len(left) > 0 {
			b.Errorf("left: %s", left)
		}
	})
}

// A lock that an operator has broken, or whose time is over, is not held, and a release says so.
func TestHoldLost(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		lose func(b *bench, v variables)
		want string
	}{
		"broken": {[]string{"--ttl", brokenSoon.String()}, func(b *bench, v variables) {
			b.want(0, "break", "a", "--token", v["HOLDFAST_TOKEN"], "--reason", "stuck for an hour")
		}, "stuck for an hour"},
		"max-hold": {[]string{"--max-hold", "1s"}, func(*bench, variables) {}, "a is not held any more: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).runtimeDir()
			b.env = append(b.env, "HOLDFAST_URL="+testenv.Redis(t).URL())
			v := b.keep(append(c.args, "a")...)
			pid := keeperOf(b, v)
			c.lose(b, v)
			b.until("check reports the loss", func() bool { code, _, _ := b.run("check", "a"); return code == 76 })
			b.want(0, "run", "a", "--", "true") // it is free
			if _, stderr := b.want(76, "check", "a"); !strings.Contains(stderr, c.want) {
				b.Error(stderr)
			}
			if _, stderr := b.want(76, "release", "a"); !strings.Contains(stderr, c.want) {
				b.Error(stderr)
			}
			b.ends(pid)
			b.want(76, "release", "a")
		})
	}
}

// A hold tells its steps that somebody has asked for the lock, and goes on.
func TestHoldRevoked(t *testing.T) {
	b := newBench(t).runtimeDir()
	v := b.keep("--ttl", brokenSoon.String(), "a")
	pid := keeperOf(b, v)
	b.want(0, "revoke", "a", "--reason", "a fix has to go out")
	b.until("check reports the request", func() bool {
		_, stderr := b.want(0, "check", "a")
		return strings.Contains(stderr, "a: asked to release it by ") && strings.Contains(stderr, "a fix has to go out")
	})
	b.want(0, "release", "a")
	b.ends(pid)
}

// A hold ends with the process that it was made for, also if that is killed, and by a signal to the
// keeper. The end of the step that made it does not end it.
func TestHoldAndParents(t *testing.T) {
	b := newBench(t).runtimeDir()
	script := b.process(exec.Command("sh", "-c", "$H hold --while $$ a >$D/held; echo >>$D/held; exec sleep 1000"))
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	script.begin()
	pid := keeperOf(b, b.parse(b.file("held")))
	// This process is no ancestor of the script, so that it needs more than the name.
	if _, stderr := b.want(64, "release", "a"); !strings.Contains(stderr, "set HOLDFAST_HOLD to ") {
		t.Error(stderr)
	}
	b.with(b.parse(b.file("held")).env()...).want(0, "check", "a")
	script.signal(syscall.SIGKILL)
	b.ends(pid)
	b.want(0, "run", "-n", "a", "--", "true")

	step := b.process(exec.Command("sh", "-c",
		fmt.Sprintf("$H hold --while %d a; echo >$D/step; exec sleep 1000", os.Getpid())))
	step.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	step.begin()
	b.file("step")
	if err := syscall.Kill(-step.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	step.code()
	b.want(0, "check", "a")
	pid = keeperOf(b, b.parse(step.out.String()))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		b.ends(pid)
		b.want(0, "run", "-n", "a", "--", "true") // it was released, not left to expire
		pid = keeperOf(b, b.keep("a"))
	}
	b.want(0, "release", "a")

	// A number that no process has.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.want(64, "hold", "--while", fmt.Sprint(gone.Process.Pid), "a"); !strings.Contains(stderr,
		"there is no such process") {
		t.Error(stderr)
	}
}

// A hold that ends before it returns leaves no lock and no place in the queue behind.
func TestHoldInterrupted(t *testing.T) {
	onStores(t, "", func(b *bench) {
		b = b.runtimeDir()
		holder := b.stay("kept", "a")
		b.file("kept")
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
			p := b.start("hold", "--max-hold", "1m", "a")
			b.waiting("a", 1)
			p.signal(s)
			if code := p.code(); code != 128+int(s) && code != -int(s) {
				b.Errorf("%v: exit code %d", s, code)
			}
			b.waiting("a", 0)
		}
		if _, stderr := b.want(75, "hold", "--max-hold", "1m", "-w", "1", "a"); !strings.Contains(stderr, "a") {
			b.Error(stderr)
		}
		waits := b.start("hold", "--max-hold", "1m", "a")
		b.until("the line about the wait", func() bool {
			return strings.Contains(waits.err.String(), "waiting for a: 0 ahead")
		})
		waits.signal(syscall.SIGTERM)
		waits.code()
		holder.end()
		// The output cannot be written, so nobody would know of the hold.
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			b.Skip(err)
		}
		defer full.Close()
		p := b.prepare("hold", "--max-hold", "1m", "a")
		p.Stdout = full
		p.begin()
		if code := p.code(); code != 74 {
			b.Errorf("exit code %d: %s", code, p.err.String())
		}
		b.want(0, "run", "-n", "a", "--", "true")
	})
}

// Several holds of one name are told apart by HOLDFAST_HOLD.
func TestSeveralHolds(t *testing.T) {
	b := newBench(t).runtimeDir()
	one, two := b.keep("-s", "a"), b.keep("-s", "a")
	_, stderr := b.want(64, "release", "a")
	if !strings.Contains(stderr, "there are 2 holds of a: set HOLDFAST_HOLD to one of ") ||
		!strings.Contains(stderr, one["HOLDFAST_HOLD"]) {
		t.Error(stderr)
	}
	b.with(one.env()...).want(0, "release", "a")
	b.with(one.env()...).want(76, "check")
	b.want(0, "check", "a") // only one is left
	b.with(two.env()...).want(0, "release")
	permits := b.keep("--limit", "3", "--permits", "2", "s")
	b.want(75, "run", "-n", "--limit", "3", "--permits", "2", "s", "--", "true")
	b.want(0, "run", "-n", "--limit", "3", "s", "--", "true")
	b.with(permits.env()...).want(0, "release")
	// A hold of the same name at another store is another hold.
	b.keep("a")
	other := b.with("HOLDFAST_URL=sqlite:" + b.dir + "/other.db")
	if _, stderr := other.want(64, "release", "a"); !strings.Contains(stderr, "a is held by this user, but not for this shell or script at this store: ") {
		t.Error(stderr)
	}
	other.keep("a")
	other.want(0, "release", "a")
	b.want(0, "check", "a")
	b.want(0, "release", "a")
}

// Two jobs of one user hold and release the same name, one after the other. The clean-up of the one
// that never held it, or whose keeper was killed, does not end the hold of the other.
func TestHoldsOfTwoJobs(t *testing.T) {
	b := newBench(t).runtimeDir()
	out, _ := b.want(0, "hold", "--max-hold", "5m", "a")
	first := b.with(b.held(out).env()...)
	b.want(75, "hold", "--max-hold", "5m", "-n", "a")
	for _, op := range []string{"check", "release", "handoff"} { // the clean-up of the second job
		if _, stderr := b.want(64, op, "a"); !strings.Contains(stderr, "a is held by this user, but not for this shell") {
			t.Errorf("%s: %s", op, stderr)
		}
	}
	first.want(0, "check", "a")
	if err := syscall.Kill(keeperOf(b, b.parse(out)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again, _ := b.want(0, "hold", "--max-hold", "5m", "a")
	second := b.with(b.held(again).env()...)
	for _, op := range []string{"check", "release", "handoff"} {
		first.want(76, op, "a")
	}
	second.want(0, "check", "a")
	second.want(0, "release", "a")
}

// What hold refuses, and the quoting of --export.
func TestHoldUsage(t *testing.T) {
	b := newBench(t).runtimeDir()
	for want, args := range map[string][]string{
		"there is no terminal: say when the hold ends": {"hold", "a"},
		"--while 0: it must be positive":               {"hold", "--while", "0", "a"},
		"--max-hold 0: it must be positive":            {"hold", "--max-hold", "0", "a"},
		"a name with a line break needs --export":      {"hold", "--max-hold", "1m", "a\nX=y"},
		"memory: is a store for one process":           {"hold", "--max-hold", "1m", "--store", "memory:", "a"},
		"the name of the lock is missing, and HOLD":    {"release"},
		"hold-keeper is a part of holdfast hold":       {"hold-keeper"},
		"the ticket is missing":                        {"adopt", "--", "true"},
		"the command is missing":                       {"adopt", "x"},
		"no ticket on standard input":                  {"adopt", "-", "--", "true"},
	} {
		if _, stderr := b.want(64, args...); !strings.Contains(stderr, want) {
			t.Errorf("%q: %q, want %q", args, stderr, want)
		}
	}
	if _, stderr := b.want(78, "adopt", "nonsense", "--", "true"); !strings.HasSuffix(stderr,
		"allowed is a whole ticket, as it was made; \"holdfast handoff\" prints it\n") {
		t.Error(stderr)
	}
	const name = "it's $(touch $D/ran) `x`\nZ=\"y\""
	p := b.process(exec.Command("sh", "-c", fmt.Sprintf(`eval "$($H hold --export --while %d "$N")"; printf %%s "$HOLDFAST_LOCK"`,
		os.Getpid())))
	p.Env = append(p.Env, "N="+name)
	p.begin()
	if code := p.code(); code != 0 || p.out.String() != name {
		t.Errorf("exit code %d: %q", code, p.out.String())
	}
	b.none("ran")
	b.want(0, "release", name)
}

// A keeper that is stopped, and so renews nothing, does not answer. Commands say so soon, and what to
// do.
func TestHoldStopped(t *testing.T) {
	b := newBench(t).runtimeDir()
	v := b.keep("--ttl", "1s", "a")
	pid := keeperOf(b, v)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.until("the keeper is stopped", func() bool { return stopped(pid) })
	begin := time.Now()
	want := fmt.Sprintf("a: the keeper (process %d) has not answered within 3s; it may be stopped. "+
		"To end it: kill -KILL %[1]d; the lease then ends by its TTL\n", pid)
	for _, op := range []string{"check", "release", "handoff"} { // by then the lease has expired
		if _, stderr := b.with(v.env()...).want(69, op, "a"); !strings.HasSuffix(stderr, want) ||
			strings.Contains(stderr, "timeout") {
			t.Errorf("%s: %q", op, stderr)
		}
	}
	if took := time.Since(begin); took > 25*time.Second { // one release took 30 s
		t.Errorf("three commands took %v", took)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.want(76, "check", "a")
	b.want(76, "release", "a")
	b.ends(pid)
}

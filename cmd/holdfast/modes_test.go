//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// stay runs a command with flags that writes its token to a file and does not end.
func (b *bench) stay(file string, args ...string) *process {
	b.Helper()
	return b.start(append(append([]string{"run"}, args...), "--", "sh", "-c",
		"echo $HOLDFAST_TOKEN >$D/"+file+"; exec sleep 1000")...)
}

// waiting waits until name has n waiters.
func (b *bench) waiting(name string, n int) {
	b.Helper()
	b.until(strconv.Itoa(n)+" waiters", func() bool { return b.field(name, "waiting ") == strconv.Itoa(n) })
}

// none checks that file does not exist.
func (b *bench) none(file string) {
	b.Helper()
	if _, err := os.Stat(filepath.Join(b.dir, file)); err == nil {
		b.Errorf("%s is there", file)
	}
}

// end ends p with TERM.
func (p *process) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 128+15 {
		p.t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// Readers share, a writer waits for them, and later readers wait behind the writer.
func TestShared(t *testing.T) {
	onStores(t, "zookeeper", func(b *bench) {
		one := b.stay("one", "-s", "a")
		b.file("one")
		two := b.stay("two", "-s", "a")
		b.file("two")
		writer := b.stay("writer", "-x", "a")
		b.waiting("a", 1)
		late := b.stay("late", "--shared", "a")
		b.waiting("a", 2)
		_, stderr := b.want(75, "run", "-n", "-s", "a", "--", "true")
		if !strings.Contains(stderr, "a is shared by ") {
			b.Error(stderr)
		}
		info, _ := b.want(0, "info", "a")
		if strings.Count(info, "  shared  ") != 3 || strings.Count(info, "  exclusive  ") != 1 {
			b.Error(info)
		}
		if out, _ := b.want(0, "ls"); !strings.Contains(out, "shared") || !strings.Contains(out, " +1 ") {
			b.Error(out)
		}
		one.end()
		b.none("writer")
		two.end()
		first := b.pid("writer")
		b.none("late")
		writer.end()
		if second := b.pid("late"); second <= first {
			b.Errorf("token %d after %d", second, first)
		}
		late.end()
		// Inside a reader: a writer that waits between the two would block both.
		for _, mode := range []string{"-s", "-x"} {
			if _, stderr := b.want(64, "run", "-s", "a", "--", binary, "run", mode, "a", "--", "true"); !strings.Contains(stderr,
				"already holds a") {
				b.Error(stderr)
			}
		}
		b.want(0, "run", "-s", "a", "--", binary, "run", "-n", "-s", "a", "--", "true")
		b.want(75, "run", "-s", "a", "--", binary, "run", "-n", "a", "--", "true")
	})
}

func TestPermits(t *testing.T) {
	onStores(t, "postgres", func(b *bench) {
		holder := b.stay("holder", "--limit", "3", "--permits", "2", "a")
		b.file("holder")
		b.want(0, "run", "-n", "--limit", "3", "a", "--", "true")
		_, stderr := b.want(75, "run", "-n", "--limit", "3", "--permits", "2", "a", "--", "true")
		if !strings.Contains(stderr, "a: permits asked for: 2, in use: 2 of 3; held by ") {
			b.Error(stderr)
		}
		b.want(78, "run", "-n", "--limit", "4", "a", "--", "true")
		b.want(78, "run", "-n", "a", "--", "true")
		waiter := b.stay("waiter", "--limit", "3", "--permits", "3", "a")
		b.waiting("a", 1)
		if info, _ := b.want(0, "info", "a"); !strings.Contains(info, "2 of 3 in use") ||
			!strings.Contains(info, " permits:2 ") || !strings.Contains(info, " permits:3 ") {
			b.Error(info)
		}
		if out, _ := b.want(0, "ls"); !strings.Contains(out, " 2/3 ") {
			b.Error(out)
		}
		var r struct {
			Limit, Used int
			Holders     []struct{ Permits int }
		}
		out, _ := b.want(0, "info", "-o", "json", "a")
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Limit != 3 || r.Used != 2 || len(r.Holders) != 1 ||
			r.Holders[0].Permits != 2 {
			b.Error(err, out)
		}
		b.none("waiter")
		if out, _ := b.want(0, "sem", "limit", "a", "5"); out != "a: the limit is now 5\n" {
			b.Error(out)
		}
		b.file("waiter")
		holder.end()
		waiter.end()
		if out, _ := b.want(0, "ls"); !strings.Contains(out, " 0/5 ") {
			b.Error("a limit that nobody uses:", out)
		}
		b.want(78, "run", "-n", "--limit", "4", "a", "--", "true")
		b.want(78, "run", "-n", "a", "--", "true")
		if out, _ := b.want(0, "info", "a"); !strings.Contains(out, "0 of 5 in use") || !strings.Contains(out, "--clear") {
			b.Error(out)
		}
		if out, _ := b.want(0, "info", "-o", "json", "a"); !strings.Contains(out, `"limit_set": true`) {
			b.Error(out)
		}
		asSet := func(permits string) []string {
			return []string{"run", "--permits", "3", "a", "--", binary, "run", "--permits", permits, "a", "--", "true"}
		}
		b.want(0, asSet("2")...)
		b.want(64, asSet("3")...)
		// Processes that use the limit that is set go on under a new one.
		b.want(0, "sem", "limit", "a", "1")
		first := b.stay("first", "--permits", "1", "a")
		b.file("first")
		second := b.stay("second", "--permits", "1", "a")
		b.waiting("a", 1)
		b.none("second")
		b.want(0, "sem", "limit", "a", "2")
		b.file("second")
		first.end()
		second.end()
		if out, _ := b.want(0, "sem", "limit", "a", "--clear"); out != "a: no limit is set now\n" {
			b.Error(out)
		}
		b.want(78, "run", "-n", "--permits", "1", "a", "--", "true")
		// Inside: only permits that could never be granted are refused.
		inside := func(permits string) []string {
			return []string{"run", "--limit", "4", "--permits", "2", "a", "--", binary, "run", "--limit", "4", "a", "--",
				binary, "run", "--limit", "4", "--permits", permits, "a", "--", "true"}
		}
		b.want(0, inside("1")...)
		if _, stderr := b.want(64, inside("2")...); !strings.Contains(stderr, "already holds a") {
			b.Error(stderr)
		}
		b.stay("lock", "b")
		b.file("lock")
		b.want(78, "sem", "limit", "b", "2")
	})
}

func TestAlso(t *testing.T) {
	onStores(t, "mysql", func(b *bench) {
		out, _ := b.want(0, "run", "m", "--also", "b", "--also", "z", "--", "sh", "-c",
			`echo $HOLDFAST_LOCK $HOLDFAST_TOKEN; echo $HOLDFAST_HELD; for n in b m z; do $H run -n $n -- true; echo $n $?; $H run $n -- true; echo $n $?; $H info $n | grep ^token; done`)
		lines := strings.Split(out, "\n")
		if len(lines) < 11 || len(strings.Fields(lines[1])) != 3 {
			b.Fatal(out)
		}
		tokens := map[string]string{}
		for i, n := range []string{"b", "m", "z"} {
			if lines[2+3*i] != n+" 75" || lines[3+3*i] != n+" 64" {
				b.Error(out)
			}
			tokens[n] = strings.Fields(lines[4+3*i])[1]
		}
		if lines[0] != "m "+tokens["m"] {
			b.Errorf("%q; tokens: %v", lines[0], tokens)
		}
		for _, names := range [][]string{{"o", "--also", "m"}, {"m", "--also", "o"}} {
			args := append([]string{"run", "m", "--", binary, "run"}, names...)
			if _, stderr := b.want(64, append(args, "--", "true")...); !strings.Contains(stderr,
				`the surrounding holdfast command already holds m`) {
				b.Error(stderr)
			}
		}
		b.stay("reader", "-s", "b")
		b.file("reader")
		b.want(0, "run", "-n", "-s", "m", "--also", "b", "--", "true")
		if _, stderr := b.want(75, "run", "-n", "m", "--also", "b", "--", "touch", "ran"); !strings.Contains(stderr,
			"b is shared by ") {
			b.Error(stderr)
		}
		if _, stderr := b.want(75, "run", "-w", "2", "m", "--limit", "2", "--also", "b", "--", "touch",
			"ran"); !strings.Contains(stderr, "b is shared by ") {
			b.Error(stderr)
		}
		b.none("ran")
		b.want(0, "run", "-n", "m", "--", "true")
		// With permits the other locks are exclusive.
		b.want(75, "run", "--limit", "2", "m", "--also", "z", "--", binary, "run", "-n", "-s", "z", "--", "true")
		b.want(0, "run", "--limit", "2", "m", "--also", "z", "--", binary, "run", "-n", "--limit", "2", "m", "--", "true")
	})
}

// If any of the locks is lost, the command ends and the other locks are released.
func TestAlsoLost(t *testing.T) {
	onStores(t, "zookeeper", func(b *bench) {
		p := b.start("--ttl", brokenSoon.String(), "run", "a", "--also", "b", "--", "sh", "-c",
			"echo $$ >$D/ready; exec sleep 1000")
		child := b.pid("ready")
		b.want(0, "break", "b", "--token", b.token("b"))
		if code := p.code(); code != 76 || running(child) {
			b.Errorf("exit code %d, %v", code, running(child))
		}
		if stderr := p.err.String(); !strings.Contains(stderr, "b: lease lost (broken by ") {
			b.Error(stderr)
		}
		b.want(0, "run", "-n", "a", "--also", "b", "--", "true")
	})
}

// The line names the lock that the process waits for.
func TestWaitingLineOfOtherModes(t *testing.T) {
	b := newBench(t)
	b.stay("b", "b")
	b.file("b")
	b.stay("sem", "--limit", "2", "--permits", "2", "sem")
	b.file("sem")
	b.stay("reader", "-s", "data")
	b.file("reader")
	b.want(0, "sem", "limit", "small", "2")
	const above = "permits asked for: 3, the limit is 2"
	_, stderr := b.want(75, "run", "-n", "--permits", "3", "small", "--", "true")
	if stderr != "holdfast: small: "+above+"\n" {
		t.Error(stderr)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"waiting for b: 0 ahead · held by ", []string{"run", "a", "--also", "b", "--also", "c", "--", "true"}},
		{"waiting for b: 1 ahead · held by ", []string{"elect", "b", "--", "true"}},
		{"waiting for sem: 0 ahead · held by ", []string{"run", "--limit", "2", "sem", "--", "true"}},
		{"waiting for small: 0 ahead · " + above, []string{"run", "--permits", "3", "small", "--", "true"}},
		{"waiting for data: 0 ahead · shared by ", []string{"run", "data", "--", "true"}},
		{"waiting for data: 1 ahead · shared by ", []string{"run", "-s", "data", "--", "true"}},
	} {
		p := b.start(c.args...)
		b.until(c.want, func() bool { return strings.Contains(p.err.String(), c.want) })
	}
}

func TestEvery(t *testing.T) {
	onStores(t, "postgres", func(b *bench) {
		const tick = "8010h"
		const next = ", in 300d" // nine tenths of the tick
		// Without a store the first line says that the ticks are those of this machine.
		said := func(stderr string) string {
			if strings.HasPrefix(stderr, "holdfast: no store is named") {
				_, stderr, _ = strings.Cut(stderr, "\n")
			}
			return stderr
		}
		out, stderr := b.want(0, "run", "--every", tick, "a", "--also", "b", "--", "echo", "ran")
		if out != "ran\n" || !strings.HasPrefix(said(stderr), "holdfast: a: next run possible at 2") ||
			!strings.Contains(stderr, next) {
			b.Error(out, stderr)
		}
		for _, n := range []string{"a", "b"} {
			out, stderr := b.want(75, "run", "--every", tick, n, "--", "echo", "ran")
			if out != "" || !strings.Contains(stderr, n+" is kept for another ") || !strings.Contains(stderr, next) {
				b.Error(out, stderr)
			}
			if out, stderr := b.want(0, "run", "--every", tick, "--skip-ok", n, "--", "echo", "ran"); out+stderr != "" {
				b.Error(out, stderr)
			}
		}
		// A run that failed keeps the name, unless --retry-failed is given.
		b.want(3, "run", "--every", tick, "kept", "--", "sh", "-c", "exit 3")
		b.want(75, "run", "--every", tick, "kept", "--", "true")
		_, stderr = b.want(3, "run", "--every", tick, "--retry-failed", "--skip-ok", "f", "--also", "g", "--", "sh", "-c",
			"exit 3")
		if !strings.Contains(stderr, "holdfast: f: next run possible now\n") {
			b.Error(stderr)
		}
		if out, stderr := b.want(0, "run", "--every", tick, "--retry-failed", "--skip-ok", "g", "--also", "f", "--", "echo",
			"ran"); out != "ran\n" || said(stderr) != "" {
			b.Error(out, stderr)
		}
		b.want(75, "run", "--every", tick, "--retry-failed", "f", "--", "true")
		// Of --min-hold and --every, the longer time counts.
		b.want(0, "run", "--every", tick, "--min-hold", "1ms", "c", "--", "true")
		b.want(75, "run", "--every", tick, "c", "--", "true")
		b.want(0, "run", "--every", "1ms", "--min-hold", "1h", "d", "--", "true")
		b.want(75, "run", "--every", "1ms", "d", "--", "true")
		// The next tick is another.
		b.want(0, "run", "--every", "1ms", "e", "--", "true")
		b.until("the tick is over", func() bool {
			code, _,
				_ := b.run("run", "--every", "1ms", "e", "--", "true")
			return code == 0
		})
	})
}

// A run whose holdfast was killed counts: its command may be half done.
func TestRetryFailedKilled(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "--ttl", "5s", "--every", "1h", "--retry-failed", "a", "--", "sh", "-c",
		"echo $$ >$D/ready; exec sleep 1000")
	b.file("ready")
	_, stderr := b.want(75, "run", "--every", "1h", "--retry-failed", "a", "--", "true")
	if !strings.Contains(stderr, "next run possible at ") || !strings.Contains(stderr, ", in 5") { // of 54 minutes
		t.Error(stderr)
	}
	p.signal(syscall.SIGKILL)
	b.until("the lease has expired and the name is kept", func() bool {
		out, _ := b.want(0, "info", "a")
		return strings.Contains(out, "(kept)")
	})
	b.want(75, "run", "--every", "1h", "--retry-failed", "a", "--", "true")
}

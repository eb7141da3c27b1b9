//go:build unix

package main_test

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// wait returns when the name is free, and info -q says whether it is.
func TestWaitUntilFree(t *testing.T) {
	onStores(t, "zookeeper", func(b *bench) {
		b.want(1, "info", "-q", "a")
		b.want(0, "wait", "a")
		p := b.holder("a")
		if out, stderr := b.want(0, "info", "-q", "a"); out+stderr != "" {
			t.Errorf("%q", out+stderr)
		}
		if _, stderr := b.want(75, "wait", "-w", "0.1", "a"); !strings.HasPrefix(stderr, "holdfast: a is still held by ") {
			t.Errorf("%q", stderr)
		}
		ended := b.start("wait", "a")
		interrupted := b.start("wait", "a")
		b.until("a line about the wait", func() bool { return strings.Contains(interrupted.err.String(), "a is held by ") })
		interrupted.signal(syscall.SIGINT)
		if code := interrupted.code(); code != 128+2 {
			t.Errorf("exit code %d", code)
		}
		p.end()
		if code := ended.code(); code != 0 {
			t.Errorf("exit code %d: %s", code, ended.err.String())
		}
		b.want(1, "info", "-q", "a")
	})
}

// A name that is kept is taken, and break frees it. A latch has a command of its own.
func TestLookAtAKeptName(t *testing.T) {
	b := newBench(t)
	b.want(0, "run", "--min-hold", "1h", "a", "--", "true")
	b.want(0, "info", "-q", "a")
	b.want(75, "wait", "-w", "0", "a")
	out, _ := b.want(0, "info", "a")
	if !strings.Contains(out, "\nNobody holds it. It stays taken for another ") {
		t.Error(out)
	}
	out, _ = b.want(0, "break", "a", "--token", b.token("a"))
	if !strings.HasPrefix(out, "freed: a, token ") || strings.Contains(out, "Its holder") {
		t.Error(out)
	}
	b.want(0, "wait", "a")
	b.want(0, "latch", "set", "l", "1")
	if _, stderr := b.want(78, "wait", "l"); !strings.Contains(stderr, "l is a latch: holdfast latch wait l") {
		t.Error(stderr)
	}
}

// No name begins with a prefix that is no text. An empty list would hide a mistake.
func TestPrefixOfNoName(t *testing.T) {
	b := newBench(t)
	b.want(0, "run", "a", "--", "true")
	for _, command := range []string{"ls", "watch"} {
		if _, stderr := b.want(78, command, "\xff"); !strings.Contains(stderr, "not valid UTF-8") {
			t.Errorf("%s: %s", command, stderr)
		}
	}
}

// Shells complete names and tokens from the store. Nothing is created or reported for that.
func TestCompletion(t *testing.T) {
	b := newBench(t)
	if out, _ := b.want(0, "__complete", "info", ""); !strings.HasPrefix(out, ":4\n") {
		t.Errorf("%q", out)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "state")); !os.IsNotExist(err) {
		t.Errorf("the store was made: %v", err)
	}
	b.holder("deploy/prod")
	b.want(0, "run", "--min-hold", "1h", "deploy/it is", "--", "true")
	b.want(0, "run", "--min-hold", "1h", "other", "--", "true")
	token := b.token("deploy/prod")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"info", "dep"}, "deploy/prod\n:4\n"}, {[]string{"break", ""}, "deploy/prod\nother\n:4\n"},
		{[]string{"ls", "o"}, "other\n:4\n"}, {[]string{"info", "other", ""}, ":4\n"},
		{[]string{"run", "o"}, "other\n:4\n"}, {[]string{"run", "other", "--", "x"}, ":0\n"},
		{[]string{"break", "deploy/prod", "--token", ""}, token + "\t"},
	} {
		// A busy machine may need more than the second that a completion has, and then gets no names.
		b.until(fmt.Sprintf("%q: %q", c.args, c.want), func() bool {
			out, _ := b.want(0, append([]string{"__complete"}, c.args...)...)
			return strings.HasPrefix(out, c.want)
		})
	}
	b.env = append(b.env, "HOLDFAST_URL=redis://"+silentServer(t))
	if out, _ := b.want(0, "__complete", "info", ""); !strings.HasPrefix(out, ":4\n") {
		t.Errorf("%q", out)
	}
}

// Only --show-command puts arguments into the store.
func TestShowCommand(t *testing.T) {
	b := newBench(t)
	for flag, want := range map[string]bool{"--show-command": true, "--note=x": false} {
		p := b.start("run", flag, "a", "--", "sh", "-c", "echo >$D/ready; exec sleep 1000", "redis://u:s3cret@h")
		b.file("ready")
		out, _ := b.want(0, "info", "a")
		all, _ := b.want(0, "info", "-o", "json", "a")
		if strings.Contains(out, "COMMAND") != want || strings.Contains(all, "exec sleep") != want ||
			strings.Contains(all, "s3cret") {
			t.Errorf("%s: %s%s", flag, out, all)
		}
		p.end()
		if err := os.Remove(filepath.Join(b.dir, "ready")); err != nil {
			t.Fatal(err)
		}
	}
}

// A file of another user says whose it is, and what to do.
func TestFileOfAnotherUser(t *testing.T) {
	b := newBench(t)
	whom := b.asNobody()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	url := "sqlite:" + filepath.Join(b.dir, "locks.db")
	b.want(0, "--store", url, "run", "a", "--", "true")
	for _, command := range [][]string{{"ls"}, {"doctor"}, {"run", "a", "--", "true"}} {
		p := b.prepare(append([]string{"--store", url}, command...)...)
		p.SysProcAttr = &syscall.SysProcAttr{Credential: whom}
		p.begin()
		if code := p.code(); code != 77 || !strings.Contains(p.err.String(),
			"locks.db belongs to "+u.Username+", and this is nobody; run holdfast as that user, or name another store") {
			t.Errorf("%q: exit code %d: %s", command, code, p.err.String())
		}
	}
}

// A store that guards less than it seems to is mentioned.
func TestStoreForFew(t *testing.T) {
	b := newBench(t)
	if _, stderr := b.want(0, "--store", "memory:", "run", "a", "--", "true"); !strings.Contains(stderr,
		"memory: is a store of this process alone") {
		t.Errorf("%q", stderr)
	}
	if _, stderr := b.want(0, "elect", "a", "--", "true"); !strings.Contains(stderr, "no store is named") {
		t.Errorf("%q", stderr)
	}
	if _, stderr := b.want(0, "ls"); !strings.HasSuffix(stderr, "locks.db, for processes of this machine only\n") {
		t.Errorf("%q", stderr)
	}
	for i, quiet := range []bool{false, true, false} { // the second run is skipped in silence, the third is refused
		args := [][]string{{"--skip-ok"}, {"--skip-ok"}, nil}[i]
		args = append(append([]string{"run", "--every", "1h"}, args...), "tick", "--", "true")
		_, _, stderr := b.run(args...)
		if said := strings.Contains(stderr, "no store is named, so COMMAND runs once per tick on this machine"); said == quiet {
			t.Errorf("%q: %q", args, stderr)
		}
	}
	named := b.with("HOLDFAST_URL=sqlite:" + b.dir + "/named.db")
	_, stderr := named.want(0, "run", "--every", "1h", "tick", "--", "true")
	if strings.Contains(stderr, "no store is named") {
		t.Errorf("%q", stderr)
	}
}

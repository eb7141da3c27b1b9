//go:build unix

package main_test

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"
)

func TestWaitingLine(t *testing.T) {
	b := newBench(t)
	holder := b.holder("deploy/prod", "--note", "release 12", "--label", "ticket=OPS-12", "--label", "env=x")
	first := b.start("run", "deploy/prod", "--", "sh", "-c", "echo $$ >$D/first; exec sleep 1000")
	b.until("a waiter", func() bool { return b.field("deploy/prod", "waiting ") == "1" })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	second := b.prepare("run", "deploy/prod", "--", "true")
	second.Stderr = w
	begin := time.Now()
	second.begin()
	w.Close()
	lines := bufio.NewScanner(r)
	next := func(pattern string) {
		t.Helper()
		r.SetReadDeadline(time.Now().Add(limit))
		for lines.Scan() && slow.MatchString(lines.Text()+"\n") {
		}
		if !regexp.MustCompile("^" + pattern + "$").MatchString(lines.Text()) {
			t.Fatalf("%q (%v), want %q", lines.Text(), lines.Err(), pattern)
		}
	}
	host, _ := os.Hostname()
	held := func(p *process, rest string) string {
		return fmt.Sprintf(`held by \S+@%s:%d "sh" for \d+s · lease \d+s%s`, regexp.QuoteMeta(host), p.Process.Pid, rest)
	}
	next("waiting for deploy/prod: 1 ahead · " + held(holder, ` · "release 12" · env=x ticket=OPS-12`))
	if quiet := time.Since(begin); quiet < 2*time.Second {
		t.Errorf("silent for %v only", quiet)
	}
	holder.signal(syscall.SIGTERM)
	b.file("first")
	next("waiting for deploy/prod: 0 ahead · " + held(first, ""))
	first.signal(syscall.SIGTERM)
	if code := second.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if lines.Scan() {
		t.Errorf("and more: %q", lines.Text())
	}
}

// A short wait prints nothing.
func TestShortWaitIsSilent(t *testing.T) {
	b := newBench(t)
	holder := b.holder("a")
	begin := time.Now()
	p := b.start("run", "a", "--", "true")
	b.until("a waiter", func() bool { return b.field("a", "waiting ") == "1" })
	holder.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 || p.err.String() != "" && time.Since(begin) < 2*time.Second {
		t.Errorf("exit code %d, %q", code, p.err.String())
	}
}

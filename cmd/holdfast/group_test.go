//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// When holdfast is killed, its command and the children of that end too, and the lock is free at
// once.
func TestKilledHoldfastLeavesNothing(t *testing.T) {
	b := newBench(t)
	p := b.start("--ttl", "1h", "run", "a", "--", "sh", "-c",
		`(trap '' TERM HUP INT; echo $(exec sh -c 'echo $PPID') >$D/inner; sleep 1000; true) & echo $$ >$D/ready; sleep 1000; true`)
	child, inner := b.pid("ready"), b.pid("inner")
	p.signal(syscall.SIGKILL)
	b.until("the command and its child end", func() bool { return !running(child) && !running(inner) })
	b.want(0, "run", "-w", "25", "a", "--", "true")
	b.until("the group ends", func() bool { return syscall.Kill(-child, 0) == syscall.ESRCH || !groupRuns(t, child) })
	p.code()
}

// holdfast is killed while it and its command are stopped. The guard still ends the command.
func TestKilledWhileStopped(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "a", "--", "sh", "-c", "sleep 1000 & echo $! >$D/inner; echo $$ >$D/ready; wait")
	child, inner := b.pid("ready"), b.pid("inner")
	for _, pid := range []int{-child, p.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	p.signal(syscall.SIGKILL)
	b.until("all end", func() bool { return !running(child) && !running(inner) })
}

// Processes that the command leaves in its group keep the lock, and holdfast reports that.
func TestGroupKeepsTheLock(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "a", "--", "sh", "-c",
		`(until [ -e $D/end ]; do sleep 0.05; done) >/dev/null 2>&1 & echo $! >$D/inner; echo $$ >$D/ready; exit 6`)
	child, inner := b.pid("ready"), b.pid("inner")
	b.until("the command ends", func() bool { return !running(child) })
	b.want(75, "run", "-n", "a", "--", "true")
	select { // wait for the notice
	case <-p.done:
		t.Fatalf("holdfast has ended: %s", p.err.String())
	case <-p.err.grown:
	case <-time.After(limit):
		t.Fatal("holdfast reports nothing")
	}
	if !running(inner) {
		t.Fatal("the member of the group was ended")
	}
	b.want(75, "run", "-n", "a", "--", "true")
	if err := os.WriteFile(filepath.Join(b.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 6 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(p.err.String(), "still running in its group"); n != 1 {
		t.Errorf("reported %d times: %q", n, p.err.String())
	}
	b.want(0, "run", "-n", "a", "--", "true")
}

// A zombie in the group does not delay the release. A container without an init has many of them.
// Its parent here, outside the group, is a shell, which might wait for it until it becomes a sleep.
func TestZombieDoesNotKeepTheLock(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "a", "--", "sh", "-c",
		`sh -c 'sh -c "echo \$\$ >$D/zombie; until grep -q sleep /proc/\$PPID/comm; do sleep 0.05; done" & echo $$ >$D/outside; exec setsid sleep 1000' >/dev/null 2>&1 & exit 3`)
	outside, zombie := b.pid("outside"), b.pid("zombie")
	defer syscall.Kill(outside, syscall.SIGKILL)
	if code := p.code(); code != 3 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	if syscall.Kill(zombie, 0) != nil || running(zombie) {
		t.Error("there was no zombie to test with")
	}
}

// groupRuns reports whether a process of the group runs.
func groupRuns(t *testing.T, group int) bool {
	procs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		stat, _ := os.ReadFile(p)
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(f) > 2 && f[2] == fmt.Sprint(group) && f[0] != "Z" {
			return true
		}
	}
	return false
}

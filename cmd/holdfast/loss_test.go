//go:build unix

package main_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// A broken lock ends the command and its whole group.
func TestBrokenLockEndsTheGroup(t *testing.T) {
	b := newBench(t)
	p := b.start("--ttl", brokenSoon.String(), "run", "a", "--", "sh", "-c",
		"sleep 1000 & echo $! >$D/inner; echo $$ >$D/ready; wait")
	child, inner := b.pid("ready"), b.pid("inner")
	out, _ := b.want(0, "break", "a", "--token", b.token("a"))
	if !strings.Contains(out, "broken: a, token ") {
		t.Error(out)
	}
	if code := p.code(); code != 76 {
		t.Errorf("exit code %d", code)
	}
	if stderr := p.err.String(); !strings.Contains(stderr, "lost") || !strings.Contains(stderr, "ending the command") {
		t.Errorf("stderr: %q", stderr)
	}
	if running(child) || running(inner) {
		t.Error("a process of the group runs")
	}
	b.want(0, "run", "-n", "a", "--", "true")
}

func TestKillAfter(t *testing.T) {
	for name, c := range map[string]struct{ after, want time.Duration }{
		"after TERM": {300 * time.Millisecond, 300 * time.Millisecond}, "at once": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := b.start("--ttl", brokenSoon.String(), "run", "--kill-after", c.after.String(), "a", "--", "sh", "-c",
				"trap '' TERM; sh -c 'echo $$ >$D/inner; while :; do sleep 0.05; done' & echo $$ >$D/ready; while :; do sleep 0.05; done")
			child, inner := b.pid("ready"), b.pid("inner")
			token := b.token("a")
			begin := time.Now()
			b.want(0, "break", "a", "--token", token)
			if code := p.code(); code != 76 {
				t.Errorf("exit code %d", code)
			}
			if took := time.Since(begin); took < c.want {
				t.Errorf("took %v, want %v at least", took, c.want)
			}
			if running(child) || running(inner) {
				t.Error("a process that ignores TERM runs")
			}
		})
	}
}

// A command that ends on TERM is not killed, and its last output arrives.
func TestLossLetsTheCommandFinish(t *testing.T) {
	b := newBench(t)
	p := b.start("--ttl", brokenSoon.String(), "run", "--kill-after", "3s", "a", "--", "sh", "-c",
		"trap 'echo bye; exit 3' TERM; echo $$ >$D/ready; while :; do sleep 0.05; done")
	b.file("ready")
	b.want(0, "break", "a", "--token", b.token("a"))
	if code := p.code(); code != 76 || p.out.String() != "bye\n" {
		t.Errorf("exit code %d, stdout %q", code, p.out.String())
	}
}

func TestMaxHold(t *testing.T) {
	b := newBench(t)
	_, stderr := b.want(76, "run", "--max-hold", "200ms", "a", "--", "sleep", "1000")
	if !strings.Contains(stderr, "its time is over") {
		t.Error(stderr)
	}
	b.want(0, "run", "-w", "5", "a", "--", "true")
}

// A command under --lease gets TERM before the end of the lease, and has ended when the store grants
// the lock to another one.
func TestTimedLease(t *testing.T) {
	b := newBench(t)
	_, stderr := b.want(76, "--ttl", "1h", "run", "--lease", "2s", "a", "--", "sh", "-c",
		"trap 'date +%s%N >$D/term' TERM; echo $$ >$D/ready; while :; do sleep 0.05; done")
	if !strings.Contains(stderr, "its time is over") {
		t.Error(stderr)
	}
	b.file("term")
	if child := b.pid("ready"); running(child) {
		t.Errorf("the command %d is still running", child)
	}
	b.want(0, "run", "-w", "20", "a", "--", "true")
	b.want(3, "run", "--lease", "1m", "a", "--", "sh", "-c", "exit 3")
	_, stderr = b.want(76, "run", "--lease", "1ms", "a", "--", "sleep", "100")
	if !strings.Contains(stderr, "its time is over") {
		t.Errorf("a lease of 1 ms: %s", stderr)
	}
	b.want(0, "run", "-n", "a", "--", "true")
}

// With --poll a waiter is not in the queue.
func TestPoll(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
	b.file("ready")
	if _, stderr := b.want(75, "run", "--poll", "10ms", "--tries", "3", "a", "--", "true"); !strings.Contains(stderr,
		"a is held") {
		t.Error(stderr)
	}
	waiter := b.start("run", "--poll", "10ms", "--tries", "10000", "a", "--", "true")
	if out, _ := b.want(0, "info", "a"); !strings.Contains(out, "waiting  0") {
		t.Error(out)
	}
	b.want(0, "break", "a", "--token", b.token("a"))
	if code := p.code(); code != 76 {
		t.Errorf("the holder exited with %d", code)
	}
	if code := waiter.code(); code != 0 {
		t.Errorf("the waiter exited with %d: %s", code, waiter.err.String())
	}
}

func TestMinHold(t *testing.T) {
	b := newBench(t)
	b.want(0, "run", "--min-hold", "1h", "a", "--", "true")
	if _, stderr := b.want(75, "run", "-n", "a", "--", "true"); !strings.Contains(stderr, "a is kept for another ") {
		t.Error(stderr)
	}
	b.want(0, "run", "--min-hold", "1s", "b", "--", "true")
	b.want(0, "run", "-w", "20", "b", "--", "true")
}

// stopped reports whether a process was stopped by a signal.
func stopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") T ")
}

// stop stops p, which holds a lock of the embedded store, between two transactions. Inside one, p
// would keep the file locked for all processes.
func (p *process) stop(s syscall.Signal) {
	p.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(p.t.dir, "state/holdfast/locks.db"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	p.t.until("it is stopped outside of a transaction", func() bool {
		p.signal(s)
		p.t.until("it is stopped", func() bool { return stopped(p.Process.Pid) })
		if _, err = db.Exec("BEGIN IMMEDIATE; ROLLBACK"); err != nil {
			p.signal(syscall.SIGCONT)
		}
		return err == nil
	})
}

// halt stops p, but not its command. On the embedded store it stops p between two transactions.
func (p *process) halt() {
	p.t.Helper()
	if _, err := os.Stat(filepath.Join(p.t.dir, "state/holdfast/locks.db")); err == nil {
		p.stop(syscall.SIGSTOP)
	} else {
		p.signal(syscall.SIGSTOP)
	}
}

// A holder that is stopped for longer than the TTL loses the lock. Its command has ended by then,
// and the holder reports that when it continues.
func TestStoppedHolderLosesTheLock(t *testing.T) {
	b := newBench(t)
	p := b.prepare("--ttl", "5s", "run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin()
	child := b.pid("ready")
	p.stop(syscall.SIGSTOP)
	b.want(0, "run", "-w", "25", "a", "--", "true") // when the lease has expired
	b.until("the command ends", func() bool { return !running(child) })
	p.signal(syscall.SIGCONT)
	if code := p.code(); code != 76 || !strings.Contains(p.err.String(), "ending the command (KILL)") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}

// A job that was stopped with its holder does nothing when it is continued too late.
func TestStoppedJobDoesNotGoOn(t *testing.T) {
	b := newBench(t)
	p := b.prepare("--ttl", "5s", "run", "a", "--", "sh", "-c",
		"echo $$ >$D/ready; until [ -e $D/go ]; do kill -TSTP $$; done; touch $D/on")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin()
	b.file("ready")
	p.stop(syscall.SIGTSTP) // as a terminal does
	b.touch("go")
	b.want(0, "run", "-w", "20", "a", "--", "true")
	p.signal(syscall.SIGCONT)
	if code := p.code(); code != 76 {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	if _, err := os.Stat(filepath.Join(b.dir, "on")); err == nil {
		t.Error("the command went on without the lock")
	}
}

// A lost lock is reported even if the command has ended successfully.
func TestLossIsReportedAtTheEnd(t *testing.T) {
	b := newBench(t)
	// The TTL is long, so the holder learns of the break only when it releases.
	p := b.start("--ttl", "1h", "run", "a", "--", "sh", "-c",
		`echo $$ >$D/ready; until [ -e $D/end ]; do sleep 0.05; done`)
	b.file("ready")
	b.want(0, "break", "a", "--token", b.token("a"))
	if err := os.WriteFile(filepath.Join(b.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 76 || !strings.Contains(p.err.String(), "lost before the command ended (with code 0)") {
		t.Errorf("exit code %d, stderr %q", code, p.err.String())
	}
}

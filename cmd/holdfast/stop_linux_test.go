package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// commandOf returns the process ID of the sleep that a process has started; 0: there is none.
func commandOf(parent int) (pid int) {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		stat, _ := os.ReadFile("/proc/" + p.Name() + "/stat")
		var id, its int
		var state string
		_, err := fmt.Sscanf(string(stat), "%d (sleep) %s %d", &id, &state, &its)
		if err == nil && its == parent {
			return id
		}
	}
	return 0
}

// early runs a command under the lock a, and sends its group a signal at a random moment before most.
func (b *bench) early(most time.Duration, s syscall.Signal) (p *process, sent time.Time) {
	b.Helper()
	p = b.prepare("run", "--ttl", "1m", "a", "--", "sleep", "1000")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin()
	time.Sleep(rand.N(most))
	sent = time.Now()
	if err := syscall.Kill(-p.Process.Pid, s); err != nil {
		b.Fatal(err)
	}
	return p, sent
}

// goesOn continues the group of a process that has stopped, and ends it. It returns the exit code.
func (p *process) goesOn() int {
	p.t.Helper()
	if err := syscall.Kill(-p.Process.Pid, syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	return p.code()
}

// TestStopAtAnyMoment: a stop takes effect whenever it comes. It does not stop holdfast between the grant
// of the lock and the start of the command, and not within a transaction.
func TestStopAtAnyMoment(t *testing.T) {
	b := newBench(t)
	b.want(0, "run", "a", "--", "true") // it creates the store
	began, inTime := 0, 0
	for i := range testenv.Rounds(40, 1000) {
		p, sent := b.early(20*time.Millisecond, syscall.SIGTSTP)
		holdfast := p.Process.Pid
		b.until("holdfast has stopped", func() bool { return stopped(holdfast) })
		onTime := time.Since(sent) < time.Second // holdfast puts a stop off for so long
		command := commandOf(holdfast)
		if command != 0 {
			began++
			b.until("the command has stopped", func() bool { return stopped(command) })
		}
		if onTime {
			inTime++
			switch code, _, stderr := b.run("info", "-q", "a"); {
			case code != 0 && code != 1:
				t.Errorf("round %d: info while holdfast is stopped: exit code %d, %s", i, code, stderr)
			case code == 0 && command == 0:
				t.Errorf("round %d: the lock is held, and no command has begun", i)
			}
		}
		if code := p.goesOn(); code != 128+15 && code != -15 {
			t.Errorf("round %d: exit code %d after TERM", i, code)
		}
	}
	t.Logf("the command had begun %d times; stopped in time: %d times", began, inTime)
	if inTime == 0 {
		t.Error("no stop was in time")
	}
}

// TestStopInTheQueue: a waiter that stops is in the middle of nothing. Nobody has to wait for it: neither for
// the file of the embedded store, nor for its turn to write there.
func TestStopInTheQueue(t *testing.T) {
	b := newBench(t)
	holder := b.start("run", "--ttl", "1h", "a", "--", "sleep", "1000")
	b.until("the lock is held", func() bool { return commandOf(holder.Process.Pid) != 0 })
	turn, err := os.Open(b.dir + "/state/holdfast/locks.db-gate")
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Close()
	inTime := 0
	for i := range testenv.Rounds(60, 1000) {
		p, sent := b.early(15*time.Millisecond, syscall.SIGTSTP)
		b.until("holdfast has stopped", func() bool { return stopped(p.Process.Pid) })
		if time.Since(sent) < time.Second { // holdfast stops then, wherever it is
			inTime++
			b.until(fmt.Sprintf("round %d: the store is free for others", i), func() bool {
				return syscall.Flock(int(turn.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
			})
			_ = syscall.Flock(int(turn.Fd()), syscall.LOCK_UN)
			b.want(0, "run", "b", "--", "true")
		}
		if code := p.goesOn(); code != 128+15 && code != -15 {
			t.Errorf("round %d: exit code %d after TERM", i, code)
		}
	}
	if inTime == 0 {
		t.Error("no stop was in time")
	}
}

// TestStopAfterItGoesOn: a stop that comes 8 ms after a SIGCONT is meant, also if that SIGCONT comes right
// after an earlier stop.
func TestStopAfterItGoesOn(t *testing.T) {
	b := newBench(t)
	p := b.prepare("run", "--ttl", "1m", "a", "--", "sleep", "1000")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin()
	holdfast, command := p.Process.Pid, 0
	b.until("the command runs", func() bool { command = commandOf(holdfast); return command != 0 })
	soon := func(is func() bool) bool { // reports whether that is so within a second
		for range 200 {
			if is() {
				return true
			}
			time.Sleep(5 * time.Millisecond)
		}
		return false
	}
	both := func() bool { return stopped(command) && stopped(holdfast) }
	b.until("a stop is meant", func() bool { // it may come together with a SIGCONT if the machine stands still
		p.signal(syscall.SIGTSTP)
		if soon(func() bool { return stopped(command) }) {
			p.signal(syscall.SIGCONT)
			time.Sleep(8 * time.Millisecond)
			p.signal(syscall.SIGTSTP)
			if soon(both) {
				return true
			}
		}
		b.until("both go on", func() bool {
			p.signal(syscall.SIGCONT)
			return !stopped(command) && !stopped(holdfast)
		})
		time.Sleep(100 * time.Millisecond)
		return false
	})
	if code := p.goesOn(); code != 128+15 && code != -15 {
		t.Errorf("exit code %d after TERM", code)
	}
}

// TestSignalsWhileItForks: holdfast's own processes are in its group at first. A signal to the group stops
// or ends none of them.
func TestSignalsWhileItForks(t *testing.T) {
	b := newBench(t)
	for i := range testenv.Rounds(20, 500) {
		p, _ := b.early(20*time.Millisecond, syscall.SIGINT)
		if code := p.code(); code != 128+2 && code != -2 || strings.Contains(p.err.String(), "cannot run") {
			t.Errorf("round %d: exit code %d, %s", i, code, p.err.String())
		}
	}
}

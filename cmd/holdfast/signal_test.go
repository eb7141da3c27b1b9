//go:build unix

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// traps writes the name of each signal it gets, and ends on USR2.
const traps = `for s in INT TERM HUP QUIT USR1 ALRM; do trap "echo $s >$D/got" $s; done
trap 'exit 42' USR2
echo $$ >$D/ready
while :; do sleep 0.05; done`

func TestSignalsAreForwarded(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "a", "--", "sh", "-c", traps)
	b.file("ready")
	for name, s := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "ALRM": syscall.SIGALRM,
	} {
		p.signal(s)
		b.until("signal "+name, func() bool {
			got, _ := os.ReadFile(filepath.Join(b.dir, "got"))
			return strings.TrimSpace(string(got)) == name
		})
	}
	p.signal(syscall.SIGUSR2)
	if code := p.code(); code != 42 {
		t.Errorf("exit code %d", code)
	}
}

// Signals reach the children of the command, as those of a terminal do.
func TestSignalsReachTheGroup(t *testing.T) {
	b := newBench(t)
	p := b.start("run", "a", "--", "sh", "-c",
		"trap '' TERM; sh -c 'trap - TERM; echo $$ >$D/inner; exec sleep 1000'; exit 5")
	b.until("exec", func() bool {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", b.pid("inner")))
		return string(cmd) == "sleep\n"
	})
	p.signal(syscall.SIGTERM)
	// A shell cannot catch a signal that was ignored at its start, so the inner shell ignores TERM
	// too.
	p.signal(syscall.SIGINT)
	if code := p.code(); code != 128+2 && code != 5 {
		t.Errorf("exit code %d", code)
	}
	if running(b.pid("inner")) {
		t.Error("the inner process runs")
	}
}

// The command inherits the signals that nohup ignores.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	b := newBench(t)
	cmd := exec.Command("sh", "-c", `trap '' HUP INT; exec "$H" run a -- sh -c 'echo $$ >$D/ready; exec sleep 1000'`)
	p := b.process(cmd)
	p.begin()
	child := b.pid("ready")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
	if err != nil {
		t.Skip("needs /proc")
	}
	for line := range strings.Lines(string(status)) {
		var mask uint64
		if _, err := fmt.Sscanf(line, "SigIgn:\t%x", &mask); err == nil {
			if want := uint64(1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1)); mask != want {
				t.Errorf("the command ignores signals %x, want %x", mask, want)
			}
			p.signal(syscall.SIGHUP)
			p.signal(syscall.SIGTERM)
			if code := p.code(); code != 128+15 {
				t.Errorf("exit code %d", code)
			}
			return
		}
	}
	t.Error("no SigIgn in " + string(status))
}

// A waiter that gets a signal leaves the queue at once.
func TestSignalsWhileWaiting(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			b := newBench(t)
			b.holder("a")
			p := b.start("run", "a", "--", "touch", "ran")
			b.until("a waiter", func() bool { return b.field("a", "waiting ") == "1" })
			p.signal(s)
			if code := p.code(); code != 128+int(s) {
				t.Errorf("exit code %d", code)
			}
			if n := b.field("a", "waiting "); n != "0" {
				t.Errorf("%s still wait", n)
			}
			if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

// A stop that is shorter than the TTL does no harm.
func TestStopAndContinueWithoutTerminal(t *testing.T) {
	b := newBench(t)
	cmd := b.prepare("run", "a", "--", "sh", "-c", "echo $$ >$D/ready; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // TSTP goes to the whole group
	cmd.begin()
	child := b.pid("ready")
	for range 3 {
		cmd.signal(syscall.SIGTSTP)
		b.until("the command stops", func() bool { return stopped(child) })
		b.until("holdfast stops", func() bool { return stopped(cmd.Process.Pid) })
		cmd.signal(syscall.SIGCONT)
		b.until("holdfast goes on", func() bool { return !stopped(cmd.Process.Pid) })
		b.until("the command goes on", func() bool { return !stopped(child) })
	}
	cmd.signal(syscall.SIGTERM)
	if code := cmd.code(); code != 128+15 {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

// A stop that somebody sends to holdfast stops it and its command, and not the script that runs it.
func TestStopIsForHoldfastAlone(t *testing.T) {
	b := newBench(t)
	cmd := b.process(exec.Command("sh", "-c", `$H run a -- sh -c 'echo $$ >$D/ready; exec sleep 1000' & echo $! >$D/holdfast; wait`))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group that is not orphaned
	cmd.begin()
	child := b.pid("ready")
	holdfast := b.pid("holdfast")
	if err := syscall.Kill(holdfast, syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	b.until("the command stops", func() bool { return stopped(child) })
	b.until("holdfast stops", func() bool { return stopped(holdfast) })
	if stopped(cmd.Process.Pid) {
		t.Error("the script has stopped, too")
	}
	if err := syscall.Kill(holdfast, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.until("the command goes on", func() bool { return !stopped(child) })
	if err := syscall.Kill(holdfast, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.code()
}

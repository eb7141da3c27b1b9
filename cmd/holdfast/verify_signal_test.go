//go:build unix

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// verifying starts a run, waits until all its workers have locks, and returns their process IDs.
func (b *bench) verifying(args ...string) (p *process, workers []int) {
	b.Helper()
	p = b.start(append(append([]string{"verify", "--duration", "1m"}, small...), args...)...)
	b.until("the workers have locks", func() bool {
		histories, _ := filepath.Glob(filepath.Join(b.dir, "kept", "p*.jsonl"))
		for _, h := range histories {
			if text, _ := os.ReadFile(h); !strings.Contains(string(text), `"granted"`) {
				return false
			}
		}
		return len(histories) >= 3
	})
	return p, b.servers(p.Process.Pid)
}

// However verify ends, its workers end and no process shows the password. An interrupted run still
// reports its results.
func TestVerifySignals(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the processes are looked for in /proc")
	}
	for name, c := range map[string]struct {
		signal syscall.Signal
		twice  bool
	}{"interrupted": {syscall.SIGINT, false}, "terminated twice": {syscall.SIGTERM, true},
		"killed": {syscall.SIGKILL, false}} {
		t.Run(name, func(t *testing.T) {
			b := verifyBench(t)
			s := testenv.RedisACL(b, []string{"user locker on >c4nary ~* &* +@all"})
			b.env = append(b.env, "HOLDFAST_URL=redis://locker:c4nary@"+s.Addr)
			faults := "stop"
			if c.twice {
				faults = "none" // a fault would let the worker go on that is stopped below
			}
			p, workers := b.verifying("--faults", faults, "--keep", filepath.Join(b.dir, "kept"))
			if len(workers) != 3 {
				t.Fatalf("workers: %v", workers)
			}
			for _, pid := range append(workers, p.Process.Pid) {
				if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil ||
					strings.Contains(string(text), "c4nary") || len(text) == 0 {
					t.Errorf("%v: %q", err, text)
				}
			}
			for _, pid := range workers { // they get the URL through a pipe
				if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil ||
					strings.Contains(string(text), "c4nary") {
					t.Errorf("%v: %q", err, text)
				}
			}
			if c.signal == syscall.SIGKILL { // stopped workers must end too
				b.until("one is stopped", func() bool {
					text, _ := os.ReadFile(filepath.Join(b.dir, "kept", "coordinator.jsonl"))
					return strings.Contains(string(text), `"fault"`)
				})
			}
			if c.twice { // verify waits for this worker, so it cannot end before the second signal
				if err := syscall.Kill(workers[0], syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			p.signal(c.signal)
			if c.twice {
				b.until("it has got the first signal", func() bool { return strings.Contains(p.err.String(), "ending early") })
				p.signal(c.signal)
			}
			code := p.code()
			b.until("the workers have ended", func() bool { return !slices.ContainsFunc(workers, running) })
			out, stderr := p.out.String(), p.err.String()
			switch {
			case c.signal == syscall.SIGKILL && code != -int(syscall.SIGKILL), c.twice && code != -int(syscall.SIGTERM):
				t.Errorf("exit code %d: %s", code, stderr)
			case c.signal == syscall.SIGINT && (code != 2 && code != 0 || !strings.Contains(out, "\nverdict ") ||
				!strings.Contains(stderr, "ending early")):
				t.Errorf("exit code %d: %s%s", code, out, stderr)
			}
			all := []string{out, stderr}
			histories, _ := filepath.Glob(filepath.Join(b.dir, "kept", "*"))
			for _, h := range histories {
				text, err := os.ReadFile(h)
				if err != nil {
					t.Error(err)
				}
				all = append(all, string(text))
			}
			if strings.Contains(strings.Join(all, ""), "c4nary") || len(histories) < 5 {
				t.Errorf("%d histories; the password is in the output: %s%s", len(histories), out, stderr)
			}
			if c.signal == syscall.SIGINT {
				if keys := s.Do("KEYS *verify*"); strings.Contains(keys, "$") {
					t.Errorf("left: %q", keys)
				}
			}
		})
	}
}

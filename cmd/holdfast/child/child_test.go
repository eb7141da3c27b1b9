//go:build unix

package child

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/child/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func command(t *testing.T, args ...string) *Command {
	t.Helper()
	path, err := Find(args[0])
	if err != nil {
		t.Fatal(err)
	}
	return &Command{
		Path: path, Args: args, Env: os.Environ(), Signals: make(chan os.Signal, 1),
		Lost: make(chan struct{}), KillAfter: time.Minute,
		Left: func() time.Duration { return time.Hour }, Notice: func(s string) { t.Log(s) },
		Ending: func(why string, kill time.Duration) { t.Log(why, kill) },
	}
}

func TestRunResults(t *testing.T) {
	for script, want := range map[string]Result{
		"exit 0": {}, "exit 3": {Code: 3}, "kill -KILL $$": {Signal: syscall.SIGKILL},
		"kill -USR1 $$": {Signal: syscall.SIGUSR1},
	} {
		got, err := Run(command(t, "sh", "-c", script))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", script, got, err, want)
		}
	}
}

func TestRunWhatCannotRun(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		code int
	}{
		"gone":     {"", 0, 127},
		"noline":   {"exit 0\n", 0o755, 126},
		"badshell": {"#!/no/such/shell\n", 0o755, 127},
		"nox":      {"#!/bin/sh\n", 0o644, 126},
	} {
		path := filepath.Join(dir, name)
		if c.mode != 0 {
			if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
		}
		cmd := command(t, "true")
		cmd.Path = path
		_, err := Run(cmd)
		var start *StartError
		if !errors.As(err, &start) || start.ExitCode() != c.code {
			t.Errorf("%s: %v, want code %d", name, err, c.code)
		}
	}
}

// A command whose lock is lost before the start still ends.
func TestRunLostAtOnce(t *testing.T) {
	cmd := command(t, "sleep", "1000")
	lost := make(chan struct{})
	close(lost)
	cmd.Lost = lost
	got, err := Run(cmd)
	if want := (Result{Signal: syscall.SIGTERM, Lost: true}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// A command with a deadline gets TERM in time, and KILL at the deadline.
func TestRunEndsInTime(t *testing.T) {
	const ask = 300 * time.Millisecond
	for name, c := range map[string]struct {
		script    string
		want      syscall.Signal
		killAfter time.Duration
	}{
		"asked":  {"exec sleep 1000", syscall.SIGTERM, time.Minute},
		"killed": {"trap '' TERM; echo >$READY; while :; do sleep 0.01; done", syscall.SIGKILL, ask},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, "sh", "-c", c.script)
			ready := filepath.Join(t.TempDir(), "ready")
			cmd.Env = append(cmd.Env, "READY="+ready)
			begin := guard.Never
			var before, last struct{ at, left time.Duration } // the last two calls of Left
			cmd.Left = func() time.Duration {
				if _, err := os.Stat(ready); err != nil && c.want == syscall.SIGKILL {
					return time.Minute // the script does not ignore TERM yet
				}
				before, last.at = last, guard.Now()
				begin = min(begin, last.at)
				last.left = begin + ask + c.killAfter - last.at
				return last.left
			}
			cmd.KillAfter = c.killAfter
			least := guard.Now() + ask // the end comes no earlier
			cmd.Ending = func(string, time.Duration) {
				if c.want == syscall.SIGKILL { // Run reads its clock between the two calls, and after them
					least = min(last.at+c.killAfter, before.at+last.left)
				}
			}
			got, err := Run(cmd)
			if want := (Result{Signal: c.want, Lost: true}); err != nil || got != want {
				t.Errorf("%+v, %v", got, err)
			}
			if end := guard.Now(); end < least {
				t.Errorf("ended %v too early, %v after the begin", least-end, end-begin)
			}
		})
	}
}

// Without time left the command does not begin.
func TestRunTooLate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	cmd := command(t, "touch", file)
	cmd.Left = func() time.Duration { return 0 }
	got, err := Run(cmd)
	if err != nil || !got.Lost {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

// A command with a limit is asked to end when the limit has passed, however long its lock lasts.
func TestRunLimit(t *testing.T) {
	cmd := command(t, "sleep", "1000")
	cmd.Limit = 50 * time.Millisecond
	got, err := Run(cmd)
	if want := (Result{Signal: syscall.SIGTERM, Lost: true}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

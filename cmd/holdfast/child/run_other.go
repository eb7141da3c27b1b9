//go:build !unix

package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Signals returns the signals that a program should catch before it runs a command.
func Signals() []os.Signal { return []os.Signal{os.Interrupt} }

// Asks returns the signals that may ask a command to release its lock, by name.
func Asks() map[string]syscall.Signal { return map[string]syscall.Signal{"TERM": syscall.SIGTERM} }

// Stops does nothing: there is no signal that stops a process.
type Stops struct{}

// PutOff does nothing, as the methods of its result.
func PutOff(chan os.Signal) *Stops { return nil }

// Pause is not needed.
type Pause func(context.Context) (resume func(), err error)

// Uses does nothing.
func (*Stops) Uses(Pause) {}

// Got does nothing.
func (*Stops) Got(os.Signal) {}

// Queued does nothing.
func (*Stops) Queued() {}

// Acquired does nothing.
func (*Stops) Acquired() {}

// Ended does nothing.
func (*Stops) Ended() {}

// Granted does nothing.
func (*Stops) Granted() {}

// Over does nothing.
func (*Stops) Over() {}

// Die does nothing: there are no signals to die of.
func Die(syscall.Signal) {}

// Run runs the command and returns when it has ended. The error is a *StartError; then no command
// has run.
func Run(c *Command) (Result, error) {
	for _, f := range c.Presence {
		defer f.Close()
	}
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return Result{}, &StartError{c.Path, err}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var r Result
	lost, revoked := c.Lost, c.Revoked
	var limit <-chan time.Time
	if c.Limit > 0 {
		limit = time.After(c.Limit)
	}
	kill := func(why string) {
		r.Lost, lost, limit = true, nil, nil
		_ = cmd.Process.Kill() // there is no TERM
		c.Ending(why, 0)
	}
	for {
		select {
		case <-c.Signals: // the console has interrupted the command as well
			r.Asked = syscall.SIGINT
		case <-lost:
			kill("the lock is lost")
		case <-limit:
			kill(TimeOver)
		case <-revoked:
			if revoked = nil; c.Ask != 0 {
				r.Revoked = true
				_ = cmd.Process.Kill()
			}
		case err := <-done:
			r.Code = cmd.ProcessState.ExitCode()
			if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) {
				r.Code = 1
			}
			return r, nil
		}
	}
}

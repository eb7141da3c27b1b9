package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

// The exit codes of holdfast itself, from sysexits.h where that has a fitting one.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitBug         = 70
	exitOutput      = 74
	exitBusy        = 75
	exitLost        = 76
	exitRefused     = 77
	exitConfig      = 78
)

var errOutput = errors.New("the output cannot be written")

// output is where results go. It keeps the first error of a write.
type output struct {
	to  *os.File
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil && err != nil {
		o.err = fmt.Errorf("%w: %w", errOutput, err)
		return n, o.err
	}
	return n, err
}

// failure is an error with its exit code. Without an error it prints nothing.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usagef returns an error about the command line.
func usagef(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// signaled is the cause of a context that a signal ended.
type signaled struct{ s syscall.Signal }

func (e signaled) Error() string { return fmt.Sprintf("ended by signal %d (%v)", int(e.s), e.s) }

// command marks the errors of our own commands. The errors of the flag library have no type.
type command struct{ error }

func (c command) Unwrap() error { return c.error }

// ours marks the errors of one of our commands, and checks what all of them have in common.
func ours(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		err := notEmpty(c)
		if err == nil {
			err = f(c, args)
		}
		if err != nil {
			return command{err}
		}
		return nil
	}
}

// exit reports err and returns its exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return 0
	}
	code, silent := codeOf(err)
	switch {
	case silent:
	case code == exitRefused || code == exitUnavailable: // the text may come from a server
		a.say("%s", a.withAdvice(err))
	default:
		a.say("%s", shorter(err.Error()))
	}
	return code
}

// shorter leaves out the list of all forms of a URL of Redis: the help has it. It names the flag in place
// of the call that a program in Go would make.
func shorter(text string) string {
	text = strings.Replace(text, " or Client.SetLimit", ", or give --limit M", 1)
	if i := strings.Index(text, "; allowed are redis://"); i >= 0 {
		return text[:i] + "; holdfast --help has the forms of URLs"
	}
	return text
}

func codeOf(err error) (code int, silent bool) {
	var (
		f     *failure
		sig   signaled
		start *child.StartError
		ours  command
		is    = func(target error) bool { return errors.Is(err, target) }
	)
	switch {
	case is(errOutput):
		return exitOutput, false
	case errors.As(err, &f):
		return f.code, f.err == nil
	case errors.As(err, &sig):
		return 128 + int(sig.s), true
	case errors.As(err, &start):
		return start.ExitCode(), false
	case !errors.As(err, &ours):
		return exitUsage, false
	case is(holdfast.ErrHeld):
		return exitBusy, false
	case is(holdfast.ErrLost):
		return exitLost, false
	case is(holdfast.ErrDeadlock):
		return exitUsage, false
	case is(holdfast.ErrInvalid), is(holdfast.ErrKind):
		return exitConfig, false
	case is(holdfast.ErrRefused), is(holdfast.ErrDamaged), is(holdfast.ErrGone):
		return exitRefused, false
	case is(holdfast.ErrUnavailable), is(holdfast.ErrUncertain), is(context.DeadlineExceeded), is(os.ErrDeadlineExceeded):
		return exitUnavailable, false
	}
	return exitBug, false
}

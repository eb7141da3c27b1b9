package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/driver"
)

// taskOptions are the flags of every command that runs another.
type taskOptions struct {
	shell     bool
	killAfter time.Duration
	note      string
	labels    labels
}

func (o *taskOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&o.shell, "command", "c", false, "run the one argument after -- by /bin/sh -c")
	f.DurationVar(&o.killAfter, "kill-after", 10*time.Second, "when the lock is lost: from TERM to KILL")
	f.StringVar(&o.note, "note", "", "shown to those who wait and by ls")
	f.Var(&o.labels, "label", "shown to those who wait and by ls (`KEY=VALUE`; repeatable)")
}

// check is what the flag library cannot see.
func (o *taskOptions) check(c *cobra.Command, args []string) (name string, argv []string, err error) {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return "", nil, usagef("the name of the lock is missing: %s", c.UseLine())
	case dash < 0 && len(args) > 1:
		return "", nil, usagef("put -- before the command: %s %s -- %s", c.CommandPath(), show(args[0]), show(strings.Join(args[1:], " ")))
	case dash < 0 || dash == len(args):
		return "", nil, usagef("the command is missing: %s", c.UseLine())
	case dash != 1:
		return "", nil, usagef("exactly one name stands before --, not %d: %s", dash, c.UseLine())
	case args[1] == "":
		return "", nil, usagef("the command is empty: %s", c.UseLine())
	case o.shell && len(args) != 2:
		return "", nil, usagef("-c takes one argument after --, not %d; quote the command line", len(args)-1)
	case o.killAfter < 0:
		return "", nil, usagef("--kill-after %v: it must not be negative", o.killAfter)
	}
	return args[0], args[1:], nil
}

// task is a command that is to run under a lock.
type task struct {
	a       *app
	o       *taskOptions
	path    string
	argv    []string
	line    *waitLine
	signals chan os.Signal
}

// task finds the command. From here on signals do not end this process by themselves.
func (a *app) task(o *taskOptions, argv []string) (*task, error) {
	if o.shell {
		argv = []string{"/bin/sh", "-c", argv[0]}
	}
	path, err := child.Find(argv[0]) // a typo should not wait in line first
	if err != nil {
		return nil, err
	}
	return &task{a, o, path, argv, newWaitLine(), catchSignals()}, nil
}

// with runs f with a client that holds and waits in the name of the command.
func (t *task) with(f func(*session) error) error {
	ctx, leave := leaveOnSignal(t.signals)
	cfg := holdfast.Config{
		Program: filepath.Base(t.argv[0]), Labels: t.o.labels,
		Observer: &holdfast.Observer{Waiting: t.line.news},
	}
	err := t.a.with(ctx, cfg, func(s *session) error {
		if came := leave(); came != nil {
			return came
		}
		return f(s)
	})
	if came := leave(); came != nil { // it ended the connecting
		return came
	}
	return err
}

// hold is what a command runs under: one lease or several, that of its lock first.
type hold struct {
	lease
	parts []*holdfast.Lease
}

// lease is a *holdfast.Lease or a *holdfast.MultiLease.
type lease interface {
	Done() <-chan struct{}
	Err() error
	Release() error
}

// take calls f to acquire, with a context that ends when a signal asks to end.
func (t *task) take(f func(context.Context) (*hold, error)) (*hold, error) {
	ctx, leave := leaveOnSignal(t.signals)
	h, err := f(ctx)
	// From here on signals are the command's.
	if came := leave(); came != nil {
		if err == nil {
			_ = h.Release() // nothing was done under it
		}
		return nil, came
	}
	return h, err
}

// under runs the command to its end under h, and releases h. The error says how this process
// is to exit.
func (t *task) under(s *session, h *hold) (child.Result, error) {
	main := h.parts[0]
	result, err := child.Run(&child.Command{
		Path: t.path, Args: t.argv, Env: s.environ(self(), h.parts),
		Signals: t.signals, Lost: t.lost(h), KillAfter: t.o.killAfter,
		Valid:  func() bool { return h.Err() == nil },
		Notice: func(text string) { t.a.say("%s: %s", show(main.Name()), text) },
	})
	released := h.Release()
	switch {
	case err != nil:
		return result, err
	case result.Lost:
		return result, &failure{exitLost, nil} // said when it happened
	case errors.Is(released, holdfast.ErrLost):
		return result, &failure{exitLost, fmt.Errorf("the lock was lost before the command ended (with code %d): %w", result.ExitCode(), released)}
	case released != nil:
		t.a.say("the command has ended, but the lock could not be given back; it runs out by itself: %v", released)
	}
	if result.Interrupted {
		t.a.die = result.Signal
	}
	if code := result.ExitCode(); code != 0 {
		return result, &failure{code, nil}
	}
	return result, nil
}

// lost is h.Done with a word about what happens then.
func (t *task) lost(h *hold) <-chan struct{} {
	done := h.Done()
	lost := make(chan struct{})
	go func() {
		<-done
		var e *holdfast.Error
		if err := h.Err(); errors.Is(err, holdfast.ErrLost) && errors.As(err, &e) {
			t.a.say("%s: %v (%s); ending the command (TERM, KILL after %v)", show(e.Name), e.Err, e.Reason, t.o.killAfter)
			close(lost)
		}
	}()
	return lost
}

// checkNames refuses what cannot be a name before anything is asked of the store.
func checkNames(names ...string) error {
	for _, n := range names {
		if err := driver.CheckName(n); err != nil {
			return err
		}
	}
	return nil
}

// catchSignals makes the signals that ask to end or inform arrive at the channel.
func catchSignals() chan os.Signal {
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, child.Signals()...)
	return signals
}

// leaveOnSignal returns a context that ends when a signal arrives that asks to end. Until
// leave is called other signals are dropped; leave returns the signal that came, if one did.
func leaveOnSignal(signals <-chan os.Signal) (_ context.Context, leave func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		var came error
		for {
			select {
			case s := <-signals:
				ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
				if came == nil && slices.Contains(ends, s) {
					came = signaled{s.(syscall.Signal)}
					cancel(came)
				}
			case <-stop:
				stopped <- came
				return
			}
		}
	}()
	return ctx, sync.OnceValue(func() error {
		close(stop)
		defer cancel(nil)
		return <-stopped
	})
}

// self names this process as its locks do.
func self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s@%s:%d", userName(), host, os.Getpid())
}

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
	chosen    bool // killAfter, by the user
	note      string
	labels    labels
}

func (o *taskOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&o.shell, "command", "c", false, "run the one argument after -- by /bin/sh -c")
	f.DurationVar(&o.killAfter, "kill-after", 0, "from TERM to KILL, at most a third of the TTL (default an eighth of it, at most 10s)")
	f.StringVar(&o.note, "note", "", "shown to those who wait and by ls")
	f.Var(&o.labels, "label", "shown to those who wait and by ls (`KEY=VALUE`; repeatable)")
}

// check is what the flag library cannot see.
func (o *taskOptions) check(c *cobra.Command, args []string) (name string, argv []string, err error) {
	dash := c.ArgsLenAtDash()
	o.chosen = c.Flags().Changed("kill-after")
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
		return "", nil, usagef("--kill-after %s: it must not be negative", span(o.killAfter))
	}
	return args[0], args[1:], nil
}

// grace is the time from TERM to KILL for a lock of this TTL. KILL comes when the lock ends at
// the latest, which is nine tenths of the TTL after the last renewal, and TERM so much earlier.
// Renewals go out every third of the TTL, and need some time in which they may fail.
func (o *taskOptions) grace(ttl time.Duration) time.Duration {
	if !o.chosen {
		return min(ttl/8, 10*time.Second)
	}
	return min(o.killAfter, ttl/3)
}

// fits refuses a time from TERM to KILL that a lock of this TTL has no room for.
func (o *taskOptions) fits(ttl time.Duration) error {
	if o.grace(ttl) == o.killAfter || !o.chosen {
		return nil
	}
	return &failure{exitConfig, fmt.Errorf("--kill-after %v is too long for a TTL of %v: the command must have ended before the store may give the lock away; allowed are %v, or with --ttl %v all of it",
		o.killAfter, ttl, (ttl / 3).Truncate(time.Millisecond), 3*o.killAfter)}
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
		if err := t.o.fits(s.TTL()); err != nil {
			return err
		}
		return f(s)
	})
	if came := leave(); came != nil { // it ended the connecting
		return came
	}
	return advised(err)
}

// advised adds to what a store has said what to do about it.
func advised(err error) error {
	if code, _ := codeOf(command{err}); err == nil || code != exitRefused && code != exitUnavailable {
		return err
	}
	return fmt.Errorf(`%w; "holdfast doctor" may say more about the store`, err)
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

// left is for how long all of them may be relied on if no renewal succeeds.
func (h *hold) left() time.Duration {
	left := h.parts[0].Left()
	for _, l := range h.parts[1:] {
		left = min(left, l.Left())
	}
	return left
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

// under runs the command to its end under h, for at most limit if that is positive, and
// releases h. The error says how this process is to exit.
func (t *task) under(s *session, h *hold, limit time.Duration) (child.Result, error) {
	name := show(h.parts[0].Name())
	beside, said := besides()
	defer said()
	result, err := child.Run(&child.Command{
		Path: t.path, Args: t.argv, Env: s.environ(self(), h.parts),
		Signals: t.signals, Lost: h.Done(), KillAfter: t.o.grace(s.TTL()), Left: h.left, Limit: limit,
		Ending: func(why string, kill time.Duration) {
			why = h.why(why)
			beside(func() { t.a.say("%s; ending the command (%s)", why, how(kill)) })
		},
		Notice: func(text string) { beside(func() { t.a.say("%s: %s", name, text) }) },
	})
	if result.Stuck { // nobody is to get the lock any sooner for what this process does
		s.keep = true
		return result, &failure{exitLost, nil}
	}
	released := h.Release()
	switch {
	case err != nil:
		return result, err
	case result.Lost:
		return result, &failure{exitLost, nil} // said when it happened
	case errors.Is(released, holdfast.ErrLost):
		return result, &failure{exitLost, fmt.Errorf("the lock was lost before the command ended (with code %d): %w", result.ExitCode(), released)}
	case released != nil:
		t.a.say("the command has ended, but the lock could not be given back; it runs out by itself: %s", oneLine(released.Error()))
	}
	if result.Interrupted {
		t.a.die = result.Signal
	}
	if code := result.ExitCode(); code != 0 {
		return result, &failure{code, nil}
	}
	return result, nil
}

// besides runs functions one after the other, beside whatever else goes on: standard error may be a pipe that nobody
// reads, and neither the end of a command nor that of its lock waits for it. said waits until all have run, for a
// second at most.
func besides() (beside func(func()), said func()) {
	queue, idle := make(chan func(), 16), make(chan struct{})
	go func() {
		defer close(idle)
		for f := range queue {
			f()
		}
	}()
	beside = func(f func()) {
		select {
		case queue <- f:
		default: // nobody reads
		}
	}
	return beside, func() {
		close(queue)
		select {
		case <-idle:
		case <-time.After(time.Second):
		}
	}
}

// why is why a command under h is made to end: what is known of the locks, or else why.
func (h *hold) why(why string) string {
	var e *holdfast.Error
	if err := h.Err(); errors.Is(err, holdfast.ErrLost) && errors.As(err, &e) {
		return fmt.Sprintf("%s: %v (%s)", show(e.Name), e.Err, e.Reason)
	}
	return show(h.parts[0].Name()) + ": " + why
}

// how is in what way a command is made to end that is killed after so long.
func how(kill time.Duration) string {
	if kill <= 0 {
		return "KILL"
	}
	return fmt.Sprintf("TERM, KILL after %v", kill.Round(time.Millisecond))
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

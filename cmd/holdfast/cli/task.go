package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// taskOptions are the flags of every command that runs another.
type taskOptions struct {
	shell     bool
	killAfter time.Duration
	chosen    bool // the user has set killAfter
	note      string
	labels    labels
	onRevoke  onRevoke
	history   int
	command   bool // show the whole command line
}

func (o *taskOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.BoolVarP(&o.shell, "command", "c", false, "run the one argument after -- with /bin/sh -c")
	durationVar(f, &o.killAfter, "kill-after", 0,
		"from TERM to KILL, at most a third of the TTL (default an eighth of it, at most 10s)")
	f.StringVar(&o.note, "note", "", "a text that waiters and ls show")
	o.onRevoke.name = "none"
	f.Var(&o.onRevoke, "on-revoke",
		"send this `SIGNAL` (TERM, INT, HUP, QUIT, USR1, USR2) to the command when \"holdfast revoke\" asks for the lock")
	f.IntVar(&o.history, "history", 0, "keep who had the lock, and when, in the last `N` entries of \"holdfast history\"")
	f.BoolVar(&o.command, "show-command", false,
		"info shows the command line to everybody who may read the store, so put no secret into it (default: the program only)")
	f.Var(&o.labels, "label", "a label that waiters and ls show (`KEY=VALUE`; repeatable)")
}

// check does the checks that the flag library cannot do.
func (o *taskOptions) check(c *cobra.Command, args []string) (name string, argv []string, err error) {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return "", nil, usagef("the name of the lock is missing: %s", c.UseLine())
	case dash < 0 && len(args) > 1:
		words := make([]string, len(args))
		for i, a := range args {
			words[i] = shellWord(a)
		}
		return "", nil, usagef("put -- before the command: %s%s %s -- %s", c.CommandPath(), given(c), words[0],
			strings.Join(words[1:], " "))
	case dash < 0 || dash == len(args):
		return "", nil, usagef("the command is missing: %s", c.UseLine())
	case dash != 1:
		return "", nil, usagef("-- needs exactly one name before it, not %d: %s", dash, c.UseLine())
	}
	return args[0], args[1:], o.checkCommand(c, args)
}

// checkCommand checks the command in args, after the first of them.
func (o *taskOptions) checkCommand(c *cobra.Command, args []string) error {
	o.chosen = c.Flags().Changed("kill-after")
	switch {
	case args[1] == "":
		return usagef("the command is empty: %s", c.UseLine())
	case o.shell && len(args) != 2:
		return usagef("-c takes one argument after --, not %d; quote the command line", len(args)-1)
	case o.history < 0 || o.history > driver.MaxHistory:
		return usagef("--history %d: allowed are 0 to %d", o.history, driver.MaxHistory)
	case o.killAfter < 0:
		return usagef("--kill-after %s: it must not be negative", span(o.killAfter))
	}
	return nil
}

// grace returns the time from TERM to KILL for a lock of this TTL. KILL comes when the lease ends
// at the latest, nine tenths of the TTL after the last renewal; TERM comes by grace earlier.
// Renewals are sent every third of the TTL, and some of them may fail before that.
func (o *taskOptions) grace(ttl time.Duration) time.Duration {
	if !o.chosen {
		return min(ttl/8, 10*time.Second)
	}
	return min(o.killAfter, ttl/3)
}

// fits refuses a time from TERM to KILL that is too long for a lock of this TTL.
func (o *taskOptions) fits(ttl time.Duration) error {
	if o.grace(ttl) == o.killAfter || !o.chosen {
		return nil
	}
	return &failure{exitConfig,
		fmt.Errorf(
			"--kill-after %v is too long for a TTL of %v: the command must end before the store may grant the lock to another; allowed are at most %v, or a --ttl of at least %v",
			o.killAfter, ttl, (ttl / 3).Truncate(time.Millisecond), 3*o.killAfter)}
}

// task is a command to run under a lock.
type task struct {
	a       *app
	o       *taskOptions
	path    string
	argv    []string
	line    *waitLine
	signals chan os.Signal
	stops   *child.Stops
}

// task finds the command. From here on this process catches signals.
func (a *app) task(o *taskOptions, argv []string) (*task, error) {
	if o.shell {
		argv = []string{"/bin/sh", "-c", argv[0]}
	}
	path, err := child.Find(argv[0]) // report a typo before waiting for the lock
	if err != nil {
		return nil, err
	}
	if scheme, _, _ := strings.Cut(a.url(), ":"); strings.EqualFold(scheme, "memory") {
		a.say("memory: is a store of this process alone: no other run waits for this lock")
	}
	signals := catchSignals()
	return &task{a, o, path, argv, newWaitLine(), signals, child.PutOff(signals)}, nil
}

// with runs f with a client that other users see as the command.
func (t *task) with(f func(*session) error) error {
	ctx, detach := cancelOnSignal(t.signals, t.stops.Got)
	cfg := holdfast.Config{
		Program: filepath.Base(t.argv[0]), Labels: t.a.labelled(t.o.labels), History: t.o.history,
		Observer: &holdfast.Observer{
			Waiting:    func(w holdfast.Waiting) { t.line.update(w); t.stops.Queued() },
			Renewed:    t.line.renewed,
			Acquired:   func(string, uint64, time.Duration) { t.stops.Acquired() },
			LeaseEnded: func(holdfast.LeaseEnd) { t.stops.Ended() },
		},
	}
	if t.o.history > 0 {
		cfg.Logger = slog.New(historyLines{slog.DiscardHandler, t.a})
	}
	if t.o.command {
		cfg.Command = t.commandLine()
	}
	closed := func() {}
	t.a.opened = func(st *open.Store) { t.stops.Uses(st.Pause) }
	err := t.a.with(ctx, cfg, func(s *session) error {
		if caught := detach(); caught != nil {
			return caught
		}
		if err := t.o.fits(s.TTL()); err != nil {
			return err
		}
		err := f(s)
		closed = t.afterwards()
		return err
	})
	closed()
	if caught := detach(); caught != nil { // it ended the attempt to connect
		return caught
	}
	return advised(err)
}

// afterwards lets stops take effect until over is called. A signal that asks this process to end stays in
// the channel.
func (t *task) afterwards() (over func()) {
	t.stops.Over()
	_, detach := cancelOnSignal(t.signals, t.stops.Got)
	return func() {
		if s := (signaled{}); errors.As(detach(), &s) {
			select {
			case t.signals <- s.s:
			default:
			}
		}
	}
}

// commandLine returns the command line as a shell would read it, cut to what a store takes, and
// without the passwords of URLs.
func (t *task) commandLine() string {
	const most = 500
	words := make([]string, len(t.argv))
	for i, w := range t.argv {
		words[i] = shellWord(w)
	}
	return cut(open.Scrub(strings.Join(words, " "), t.a.url()), most)
}

// hold has the leases that a command runs under; that of its main lock comes first.
type hold struct {
	lease
	parts []*holdfast.Lease
	spare time.Duration // from the end of the command to that of the leases
	retry bool          // keep no name if the command fails
}

// end releases the leases after the command.
func (h *hold) end(failed bool) error {
	if failed && h.retry {
		return h.ReleaseNow()
	}
	return h.Release()
}

// lease is a *holdfast.Lease or a *holdfast.MultiLease.
type lease interface {
	Context(parent context.Context) context.Context
	Done() <-chan struct{}
	Err() error
	Release() error
	ReleaseNow() error
}

// left returns for how long the command may run if no renewal succeeds.
func (h *hold) left() time.Duration {
	left := h.parts[0].Left()
	for _, l := range h.parts[1:] {
		left = min(left, l.Left())
	}
	return left - h.spare
}

// endsBefore makes the command end before a lease of the length that --lease asks for. At the end of
// such a lease the client gives the name back at once, so the processes must have ended: between KILL
// and the end there is a twentieth of the lease, or of the TTL. It returns the time from TERM to
// KILL, and how long the command may run, at most limit if that is positive.
func (h *hold) endsBefore(o *taskOptions, ttl, limit, lease time.Duration) (kill, runs time.Duration) {
	shorter := min(ttl, lease)
	kill, h.spare = o.grace(shorter), shorter/20
	runs = max(lease-lease/50-h.spare-kill, time.Millisecond)
	if limit > 0 {
		runs = min(runs, limit)
	}
	return kill, runs
}

// take calls f to acquire the locks. A signal that asks to end this process ends f's context.
func (t *task) take(f func(context.Context) (*hold, error)) (*hold, error) {
	ctx, detach := cancelOnSignal(t.signals, t.stops.Got)
	h, err := f(ctx)
	caught := detach() // from here on signals are for the command
	if err == nil {
		t.stops.Granted()
	}
	if caught != nil {
		if err == nil {
			_ = h.ReleaseNow() // the command has not run, so no minimum hold counts
		}
		return nil, caught
	}
	return h, err
}

// under runs the command until it ends, and then releases h. If limit is positive, the command runs
// at most that long; if lease is, it ends before the lease does, which is not renewed beyond that.
// The error determines the exit code of this process.
func (t *task) under(s *session, h *hold, limit, lease time.Duration) (child.Result, error) {
	kill := t.o.grace(s.TTL())
	if lease > 0 {
		kill, limit = h.endsBefore(t.o, s.TTL(), limit, lease)
	}
	name := show(h.parts[0].Name())
	report, flush := reporter()
	defer flush()
	asked, stop := t.tellRevoked(h, report)
	defer stop()
	env := s.environ(self(), h.parts)
	secrets, withdraw, err := offerSecrets(ownURL())
	if err != nil {
		t.a.say("a holdfast inside the command will have no password: %v", err)
	}
	defer withdraw()
	if secrets != "" {
		env = append(env, envSecrets+"="+secrets)
	}
	presence, err := s.store.Presence()
	if err != nil {
		t.a.say("if this holdfast is killed, the lock may be granted before COMMAND has ended: %v", err)
	}
	result, err := child.Run(&child.Command{
		Path: t.path, Args: t.argv, Env: env, Presence: presence, Pause: s.store.Pause,
		Signals: t.signals, Lost: h.Done(), KillAfter: kill, Left: h.left, Limit: limit, Margin: s.TTL(),
		Revoked: asked, Ask: t.o.onRevoke.signal,
		Ending: func(why string, kill time.Duration) {
			if lease > 0 && lease <= s.TTL() {
				why = child.TimeOver // nothing renews such a lease
			}
			text := h.why(why)
			if err := s.Health().Err; why == child.NotRenewed && err != nil {
				text += ": " + oneLine(err.Error())
			}
			report(func() { t.a.say("%s; ending the command (%s)", text, how(kill)) })
		},
		Notice: func(text string) { report(func() { t.a.say("%s: %s", name, text) }) },
	})
	defer t.afterwards()()
	if result.Stuck { // a release would let others in before the processes have ended
		s.keep = true
		return result, &failure{exitLost, nil}
	}
	released := h.end(err != nil || result.Lost || result.ExitCode() != 0)
	switch {
	case err != nil:
		return result, err
	case result.Lost:
		return result, &failure{exitLost, nil} // reported by Ending
	case errors.Is(released, holdfast.ErrLost):
		return result, &failure{exitLost, fmt.Errorf("the lock was lost before the command ended (with code %d): %w",
			result.ExitCode(), released)}
	case released != nil:
		t.a.say("the command has ended, but the lock could not be released; it expires by itself, after any minimum hold: %s",
			oneLine(released.Error()))
	}
	if result.Interrupted {
		t.a.die = result.Signal
	}
	if code := result.ExitCode(); code != 0 {
		return result, &failure{code, nil}
	}
	return result, nil
}

// reporter returns report, which runs functions one after the other in the background. Standard
// error may be a pipe that nobody reads, and must not delay the end of a command or of its lock.
// flush waits until all functions have run, for a second at most.
func reporter() (report func(func()), flush func()) {
	queue, idle := make(chan func(), 16), make(chan struct{})
	go func() {
		defer close(idle)
		for f := range queue {
			f()
		}
	}()
	report = func(f func()) {
		select {
		case queue <- f:
		default: // nobody reads
		}
	}
	return report, func() {
		close(queue)
		select {
		case <-idle:
		case <-time.After(time.Second):
		}
	}
}

// why returns the reason for ending a command: that of a lost lease, or else the argument why.
func (h *hold) why(why string) string {
	for _, l := range h.parts { // the others may have been released meanwhile
		var e *holdfast.Error
		if err := l.Why(); errors.Is(err, holdfast.ErrLost) && errors.As(err, &e) {
			if e.Reason == holdfast.ReasonMaxHold { // --max-hold or --lease
				return show(e.Name) + ": " + child.TimeOver
			}
			reason := string(e.Reason)
			if e.Notice != nil {
				reason += " by " + operatorText(e.Notice)
			}
			return fmt.Sprintf("%s: %v (%s)", show(e.Name), e.Err, reason)
		}
	}
	return show(h.parts[0].Name()) + ": " + why
}

// how names the signals that end a command; kill is the time until KILL.
func how(kill time.Duration) string {
	if kill <= 0 {
		return "KILL"
	}
	return fmt.Sprintf("TERM, KILL after %v", kill.Round(time.Millisecond))
}

// checkNames refuses invalid names before the first exchange with the store.
func checkNames(names ...string) error {
	for _, n := range names {
		if err := driver.CheckName(n); err != nil {
			return err
		}
	}
	return nil
}

// self returns this process as user@host:pid.
func self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s@%s:%d", userName(), host, os.Getpid())
}

package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

// runOptions are the flags of run.
type runOptions struct {
	noWait    bool
	wait      seconds
	exclusive bool
	busyCode  int
	skipOK    bool
	shell     bool
	fair      bool
	killAfter time.Duration
	minHold   time.Duration
	maxHold   time.Duration
	note      string
	labels    labels
}

const aboutRun = `Wait for the lock NAME, run COMMAND while it is held, and exit with COMMAND's code.

COMMAND gets standard input, output and error as they are, and the terminal; signals are
passed on to its whole process group. The lock is released when nobody is left in that
group. If the lock is lost, because an operator broke it, the store did not answer for too
long, or the job was stopped for longer than the TTL, the group is made to end, and the
exit code is 76. If holdfast is killed, the group is killed with it.

The environment of COMMAND has HOLDFAST_LOCK (the name), HOLDFAST_TOKEN (the fencing token:
larger for every later holder, so what COMMAND writes to can refuse the writes of an earlier
one), HOLDFAST_OWNER (user@host:pid) and HOLDFAST_HELD, by which a run of the same name
inside COMMAND is refused instead of waiting for itself. HOLDFAST_URL is passed on without
its password.

While it waits, and after two seconds, holdfast says on standard error who has the lock.`

func (a *app) runCommand() *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  aboutRun,
		Example: `  holdfast run deploy/prod -- ./deploy.sh --fast
  holdfast run -w 30 deploy/prod -- ./deploy.sh      give up after 30 seconds
  holdfast run -n --skip-ok hourly -- ./job          somebody else does it: fine
  holdfast run -c report -- 'make report | mail ops'`,
		RunE: ours(func(c *cobra.Command, args []string) error {
			name, argv, err := o.check(c, args)
			if err != nil {
				return err
			}
			return a.run(o, name, argv)
		}),
	}
	f := c.Flags()
	f.BoolVarP(&o.noWait, "nonblock", "n", false, "do not wait: exit at once if the lock is taken")
	f.VarP(&o.wait, "wait", "w", "wait at most so long (`SECONDS` or a duration such as 1m30s)")
	f.BoolVarP(&o.exclusive, "exclusive", "x", true, "one holder at a time (the only way in this version)")
	f.IntVarP(&o.busyCode, "conflict-exit-code", "E", exitBusy, "exit `CODE` if the lock is taken or the wait is over")
	f.BoolVar(&o.skipOK, "skip-ok", false, "exit 0, silently, if the lock is taken or the wait is over")
	f.BoolVarP(&o.shell, "command", "c", false, "run the one argument after -- by /bin/sh -c")
	f.DurationVar(&o.killAfter, "kill-after", 10*time.Second, "when the lock is lost: from TERM to KILL")
	f.DurationVar(&o.minHold, "min-hold", 0, "keep the lock taken at least so long, even past the end of COMMAND")
	f.DurationVar(&o.maxHold, "max-hold", 0, "lose the lock, and end COMMAND, after so long")
	f.StringVar(&o.note, "note", "", "shown to those who wait and by ls")
	f.Var(&o.labels, "label", "shown to those who wait and by ls (`KEY=VALUE`; repeatable)")
	f.BoolVar(&o.fair, "fair", false, "strict arrival order among all who wait")
	c.MarkFlagsMutuallyExclusive("nonblock", "wait")
	return c
}

// check is what the flag library cannot see.
func (o *runOptions) check(c *cobra.Command, args []string) (name string, argv []string, err error) {
	const form = "holdfast run [flags] NAME -- COMMAND [ARG...]"
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return "", nil, usagef("the name of the lock is missing: %s", form)
	case dash < 0 && len(args) > 1:
		return "", nil, usagef("put -- before the command: holdfast run %s -- %s", show(args[0]), show(strings.Join(args[1:], " ")))
	case dash < 0 || dash == len(args):
		return "", nil, usagef("the command is missing: %s", form)
	case dash != 1:
		return "", nil, usagef("exactly one name stands before --, not %d: %s", dash, form)
	case args[1] == "":
		return "", nil, usagef("the command is empty: %s", form)
	case o.shell && len(args) != 2:
		return "", nil, usagef("-c takes one argument after --, not %d; quote the command line", len(args)-1)
	case !o.exclusive:
		return "", nil, usagef("--exclusive=false: shared locks are not in this version")
	case o.busyCode < 0 || o.busyCode > 255:
		return "", nil, usagef("-E %d: exit codes are 0 to 255", o.busyCode)
	case o.killAfter < 0:
		return "", nil, usagef("--kill-after %v: it must not be negative", o.killAfter)
	case c.Flags().Changed("min-hold") && o.minHold <= 0:
		return "", nil, usagef("--min-hold %v: it must be positive", o.minHold)
	case c.Flags().Changed("max-hold") && o.maxHold <= 0:
		return "", nil, usagef("--max-hold %v: it must be positive", o.maxHold)
	}
	return args[0], args[1:], nil
}

func (o *runOptions) lockOptions() []holdfast.Option {
	var opts []holdfast.Option
	if o.wait.set && o.wait.d > 0 {
		opts = append(opts, holdfast.WaitAtMost(o.wait.d))
	}
	if o.minHold > 0 {
		opts = append(opts, holdfast.MinHold(o.minHold))
	}
	if o.maxHold > 0 {
		opts = append(opts, holdfast.MaxHold(o.maxHold))
	}
	if o.note != "" {
		opts = append(opts, holdfast.Note(o.note))
	}
	if o.fair {
		opts = append(opts, holdfast.Fair())
	}
	return opts
}

// busy turns the error of a lock that was taken into the exit that was asked for.
func (o *runOptions) busy(err error) error {
	switch {
	case !errors.Is(err, holdfast.ErrHeld):
		return err
	case o.skipOK:
		return nil
	}
	var e *holdfast.Error
	if errors.As(err, &e) && e.Holder != nil {
		return &failure{o.busyCode, fmt.Errorf("%s is %s", show(e.Name), describe(e.Holder))}
	}
	return &failure{o.busyCode, err}
}

// seconds is a duration that may be given as a plain number of seconds, as flock takes it.
type seconds struct {
	d   time.Duration
	set bool
}

func (s *seconds) String() string {
	if s == nil || !s.set {
		return ""
	}
	return s.d.String()
}

func (s *seconds) Type() string { return "SECONDS" }

func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, nerr := strconv.ParseFloat(text, 64); nerr == nil {
		d, err = time.Duration(n*float64(time.Second)), nil
		if !(n >= 0 && n < 1e9) {
			err = errors.New("out of range")
		}
	}
	switch {
	case err != nil:
		return errors.New("expected seconds, such as 10 or 0.5, or a duration, such as 1m30s")
	case d < 0:
		return errors.New("it must not be negative")
	}
	s.d, s.set = d, true
	return nil
}

// labels collects KEY=VALUE.
type labels map[string]string

func (l *labels) String() string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(*l)) {
		list = append(list, k+"="+(*l)[k])
	}
	return strings.Join(list, ",")
}

func (l *labels) Type() string { return "KEY=VALUE" }

func (l *labels) Set(text string) error {
	k, v, ok := strings.Cut(text, "=")
	if !ok || k == "" {
		return errors.New("expected KEY=VALUE")
	}
	if *l == nil {
		*l = labels{}
	}
	(*l)[k] = v
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// runOptions are the flags of run.
type runOptions struct {
	taskOptions
	noWait    bool
	wait      seconds
	exclusive bool
	shared    bool
	permits   int
	limit     int // 0: not a semaphore
	also      []string
	busyCode  int
	skipOK    bool
	every     time.Duration
	minHold   time.Duration
	maxHold   time.Duration
}

const aboutRun = `Wait for the lock NAME, run COMMAND while it is held, and exit with COMMAND's code.

COMMAND gets standard input, output and error as they are, and the terminal; signals are
passed on to its whole process group. The lock is released when nobody is left in that
group. If holdfast is killed, the group is killed with it.

If the lock is lost, because an operator broke it or the store did not answer for too long,
the group is made to end, and the exit code is 76: TERM, and KILL after --kill-after. Before
a lock runs out, both come early enough: TERM when --kill-after of the time is left in which
nobody else can have the lock, KILL when nothing is left of it, a tenth of the TTL before
the store may give the lock away. That is so whatever the group does about TERM, while it is
stopped, and while holdfast is stopped or swapped out: a second process of holdfast,
"lock-guard", has the same deadline. A --kill-after that the TTL has no room for is refused.
Processes that leave the group, as daemons do (setsid), are neither waited for nor ended.

NAME has one holder at a time, or with -s any number that share it, while nobody has it
alone; the line is served in order of arrival, so readers that come after a waiting writer
wait behind it. With --limit M it is a semaphore of M permits, of which COMMAND runs under
--permits; all that use the name say the same M ("holdfast sem limit" changes it).

--also takes other locks together with NAME, exclusively or with -s shared, without dead
locks whatever the order; COMMAND is made to end when any of them is lost.

--every is for schedules that start a job on many machines: COMMAND runs once per tick. The
first to come takes the lock, without waiting, and it stays taken for nine tenths of the tick,
also past the end of COMMAND. A tick begins with its first run. Clocks may differ by a tenth of it.

The environment of COMMAND has HOLDFAST_LOCK (the name), HOLDFAST_TOKEN (the fencing token:
larger for every later holder, so what COMMAND writes to can refuse the writes of an earlier
one), HOLDFAST_OWNER (user@host:pid) and HOLDFAST_HELD, by which a run of the same name
inside COMMAND is refused instead of waiting for itself. HOLDFAST_URL is passed on without
its password.

While it waits, and after two seconds, holdfast says on standard error who has the lock, or
that the store does not answer. A store that will not grant anything ends the wait (77).`

func (a *app) runCommand() *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  aboutRun,
		Example: `  holdfast run deploy/prod -- ./deploy.sh --fast
  holdfast run -w 30 deploy/prod -- ./deploy.sh        give up after 30 seconds
  holdfast run -s data -- ./report                     beside other readers
  holdfast run --limit 4 encoders -- ./encode          four at a time
  holdfast run --also db app -- ./migrate              both or neither
  holdfast run --every 1h --skip-ok report -- ./job    once an hour on any one machine
  holdfast run -c report -- 'make report | mail ops'`,
		RunE: ours(func(c *cobra.Command, args []string) error {
			name, argv, err := o.check(c, args)
			if err != nil {
				return err
			}
			return a.run(o, name, argv)
		}),
	}
	o.register(c)
	f := c.Flags()
	f.BoolVarP(&o.noWait, "nonblock", "n", false, "do not wait: exit at once if the lock is taken")
	f.VarP(&o.wait, "wait", "w", "wait at most so long (`SECONDS` or a duration such as 1m30s)")
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "one holder at a time: the default, but in ZooKeeper as the writer of a Curator read/write lock")
	f.BoolVarP(&o.shared, "shared", "s", false, "share the lock with others that do")
	f.IntVar(&o.limit, "limit", 0, "NAME is a semaphore that has `M` permits in all")
	f.IntVar(&o.permits, "permits", 1, "how many of them to hold (`N`)")
	f.StringArrayVar(&o.also, "also", nil, "hold the lock `NAME` too (repeatable)")
	f.IntVarP(&o.busyCode, "conflict-exit-code", "E", exitBusy, "exit `CODE` if the lock is taken or the wait is over")
	f.BoolVar(&o.skipOK, "skip-ok", false, "exit 0, silently, if the lock is taken or the wait is over")
	f.DurationVar(&o.every, "every", 0, "run once per tick of this length: do not wait, keep the lock until the tick is over")
	f.DurationVar(&o.minHold, "min-hold", 0, "keep the lock taken at least so long, even past the end of COMMAND")
	f.DurationVar(&o.maxHold, "max-hold", 0, "end COMMAND, and give the lock back, after so long")
	return c
}

// check is what the flag library cannot see.
func (o *runOptions) check(c *cobra.Command, args []string) (name string, argv []string, err error) {
	given := c.Flags().Changed
	err = firstOf(
		together(c, "nonblock", "wait"), together(c, "every", "wait"), together(c, "exclusive", "shared", "limit"),
		atMost(c, "every", o.every, driver.MaxHold), atMost(c, "min-hold", o.minHold, driver.MaxHold),
		positive(c, "max-hold", "permits"),
	)
	switch {
	case err != nil:
	case given("exclusive") && !o.exclusive:
		err = usagef("--exclusive=false: say --shared or --limit")
	case given("permits") && !given("limit"):
		err = usagef("--permits %d: of how many? Say --limit", o.permits)
	case given("limit") && (o.limit < 1 || o.limit > driver.MaxLimit):
		err = usagef("--limit %d: allowed are 1 to %d", o.limit, driver.MaxLimit)
	case given("limit") && o.permits > o.limit:
		err = usagef("--permits %d: allowed are 1 to %d, the --limit", o.permits, o.limit)
	case o.busyCode < 0 || o.busyCode > 255:
		err = usagef("-E %d: allowed are the exit codes 0 to 255", o.busyCode)
	default:
		return o.taskOptions.check(c, args)
	}
	return "", nil, err
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

package cli

import (
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
	limit     int // 0: not a semaphore, unless asSet
	asSet     bool
	also      []string
	busyCode  int
	skipOK    bool
	every     time.Duration
	retry     bool
	minHold   time.Duration
	maxHold   time.Duration
	lease     time.Duration
	poll      time.Duration
	tries     int
}

const aboutRun = `Wait for the lock NAME, run COMMAND while holding it, and exit with COMMAND's exit code.

COMMAND gets standard input, output and error as they are, and the terminal. holdfast passes
signals on to COMMAND's whole process group, and releases the lock when no process is left in
that group. If holdfast is killed, the group is killed with it. After TERM, HUP, INT or QUIT the
group also gets CONT, so that it can end if it was stopped. If it does not end, it runs on.

A stop (^Z) stops COMMAND and holdfast. While holdfast waits, it stops too, and keeps its place for
up to a TTL. If its turn comes meanwhile, it gets the lock, and nobody works until that lease ends.
Without a terminal, a COMMAND that is stopped keeps the lock: holdfast goes on and renews it, and
--max-hold bounds that.

A lock is lost when an operator breaks it, or when the store does not answer for too long.
holdfast then ends the group: TERM, and KILL after --kill-after. The exit code is 76. If the
lock is about to expire, the signals come early enough: KILL a tenth of the TTL before the
store may grant the lock to another client, TERM --kill-after before KILL. This also holds if
the group ignores TERM or is stopped, and if holdfast itself is stopped or swapped out: a
second process of holdfast, "lock-guard", has the same deadline. holdfast refuses a
--kill-after that is too long for the TTL. It neither waits for nor ends processes that leave
the group, as daemons do (setsid).

NAME has one holder at a time. With -s any number of holders share it, while nobody holds it
exclusively. The queue is served in order of arrival, so readers that come after a waiting
writer wait behind it. With --limit M it is a semaphore of M permits, and COMMAND holds
--permits of them. All users of the name must give the same M. With --permits alone the limit is
the one that "holdfast sem limit" has set, whatever it is at the time.

--also takes other locks together with NAME, exclusively, or shared with -s. No order of the
names causes a deadlock. holdfast ends COMMAND when any of the locks is lost.

With --on-revoke SIGNAL, COMMAND's process group gets SIGNAL once when "holdfast revoke" asks for
the lock. Without it holdfast shows the request. Either way the lock is kept until COMMAND has ended.

--lease is for a lock that must be free at a certain time: no process of COMMAND is left when that
time is over. KILL comes before its end, by a twentieth of the lease or of the TTL, whichever is
shorter. TERM comes before KILL, by an eighth of the same, or by --kill-after, which is at most a
third. If this machine fails, the store frees the name within a tenth of the lease after its end (docs/guarantees.md has the
stores). A --lease longer than the TTL is renewed until its end. --every and --min-hold must not keep
the name longer than the lease.

--every is for schedules that start a job on many machines. A tick is one interval of the
schedule, such as an hour with --every 1h. COMMAND runs once per tick: the first machine takes the
lock, which is exclusive, without waiting. The name then stays taken for nine tenths of the tick,
even if COMMAND ends earlier. A tick begins with its first run. Clocks may differ by a tenth of the
tick. holdfast shows on standard error when the next run is possible; with --skip-ok only if COMMAND
failed. Without a store it also says that the ticks are those of this machine alone.

On a quorum, a refusal may name a grant that only a minority of the servers has. Nobody knows then
whether COMMAND has run in this tick. Without -n, holdfast tries again until that is known: for what
is left of its lease, or for a TTL if that is longer, and 5s more, but no longer than a tick. Then
the exit code is that of a taken lock, with --skip-ok too.

With --retry-failed the name is not kept if COMMAND fails: if its exit code is not 0, or holdfast
had to end it. Another machine, or the next start, may then run COMMAND in the same tick. The name
stays taken if holdfast is killed, if its machine dies, if the lease had expired at the store, or if
the store does not confirm the release.

Waiters, ls and info show the name of COMMAND's program, and not its arguments, which may contain
secrets. With --show-command, info shows the whole command line to everybody who may read the store,
cut after 500 characters; passwords in URLs are masked.

The environment of COMMAND has
  HOLDFAST_LOCK    the name
  HOLDFAST_TOKEN   the fencing token: larger for every later holder, so that the resource can
                   refuse writes of an earlier one
  HOLDFAST_OWNER   user@host:pid
  HOLDFAST_HELD    the locks held: a run of the same name inside COMMAND is refused, instead
                   of waiting for itself
  HOLDFAST_URL     the URL of the store without its password, if it was set
  HOLDFAST_HOLD    the surrounding "holdfast hold", if that is of another lock and is not over yet;
                   COMMAND does not get another one, so that check is not about an old hold

After waiting two seconds, holdfast shows on standard error who holds the lock, or that the
store does not answer. -w bounds the wait for the lock. Before that wait, holdfast connects, and
gives up a silent store after 15 seconds at the latest; with -w after that time, but not before
3 seconds. A shorter limit of the store's client comes first: Redis has dial-timeout (2 seconds) and
PostgreSQL connect_timeout (5). The wait ends if the store will never grant the lock (exit code 77),
and if the store has not answered for one --ttl, also within -w (69).`

func (a *app) runCommand() *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  aboutRun,
		Example: `  holdfast run deploy/prod -- ./deploy.sh --fast
  holdfast run -w 30 deploy/prod -- ./deploy.sh        give up after 30 seconds
  holdfast run -s data -- ./report                     together with other readers
  holdfast run --limit 4 encoders -- ./encode          four at a time
  holdfast run --permits 1 encoders -- ./encode        as many at a time as "sem limit" has set
  holdfast run --also db app -- ./migrate              both locks or neither
  holdfast run --every 1h --skip-ok report -- ./job    once an hour, on one of many machines
  holdfast run -c mail -- 'make report | mail ops'`,
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
	alsoTimeout(c)
	f.VarP(&o.wait, "wait", "w", "wait at most this long (`SECONDS` or a duration such as 1m30s)")
	f.BoolVarP(&o.exclusive, "exclusive", "x", false,
		"one holder at a time: the default; in ZooKeeper (refused with protocol=single) and with dialect=redisson, -x is the writer of a read/write lock")
	f.BoolVarP(&o.shared, "shared", "s", false, "share the lock with other holders that use -s")
	f.IntVar(&o.limit, "limit", 0, "NAME is a semaphore with `M` permits in all")
	f.IntVar(&o.permits, "permits", 1, "hold `N` permits; without --limit, of the limit that is set")
	f.StringArrayVar(&o.also, "also", nil, "hold the lock `NAME` too (repeatable)")
	f.IntVarP(&o.busyCode, "conflict-exit-code", "E", exitBusy, "exit `CODE` if the lock is taken or the wait timed out")
	f.BoolVar(&o.skipOK, "skip-ok", false, "exit 0, silently, if the lock is taken or the wait timed out")
	durationVar(f, &o.every, "every", 0,
		"run once per tick, which is this long: do not wait, keep the name taken until the tick ends")
	f.BoolVar(&o.retry, "retry-failed", false, "with --every or --min-hold: do not keep the name if COMMAND fails")
	durationVar(f, &o.minHold, "min-hold", 0, "keep the name taken at least this long, even if COMMAND ends earlier")
	durationVar(f, &o.maxHold, "max-hold", 0, "end COMMAND, and release the lock, after this long")
	durationVar(f, &o.lease, "lease", 0,
		"the lock lasts this long at most, also if this machine fails: COMMAND ends before, and the store then frees the name")
	durationVar(f, &o.poll, "poll", 0,
		"do not join the queue: try again after about this long, and then after longer pauses, at most --tries times")
	f.IntVar(&o.tries, "tries", 60, "how often to try with --poll")
	return c
}

// check does the checks that the flag library cannot do.
func (o *runOptions) check(c *cobra.Command, args []string) (name string, argv []string, err error) {
	given := c.Flags().Changed
	err = firstOf(
		together(c, "nonblock", "wait"), together(c, "every", "wait"), together(c, "exclusive", "shared", "limit"),
		together(c, "exclusive", "shared", "permits"), together(c, "every", "shared"), together(c, "every", "limit"),
		together(c, "every", "permits"),
		atMost(c, "every", o.every, driver.MaxHold), atMost(c, "min-hold", o.minHold, driver.MaxHold),
		positive(c, "max-hold", "lease", "poll", "tries", "permits"),
		together(c, "poll", "nonblock"), together(c, "poll", "every"),
		atMost(c, "max-hold", o.maxHold, driver.MaxHold), atMost(c, "lease", o.lease, driver.MaxHold),
	)
	switch {
	case err != nil:
	case given("exclusive") && !o.exclusive:
		err = usagef("--exclusive=false: use --shared or --limit")
	case given("tries") && !given("poll"):
		err = usagef("--tries %d: --poll is missing", o.tries)
	case o.retry && !given("every") && !given("min-hold"):
		err = usagef("--retry-failed: --every or --min-hold is missing")
	case o.lease > 0 && o.lease < o.keeps():
		by, d := "--min-hold", o.minHold
		if o.keeps() > o.minHold {
			by, d = "--every", o.every
		}
		err = usagef("--lease %s: %s %s keeps the name for %s, so --lease must be at least that", span(o.lease), by, span(d),
			span(o.keeps()))
	case o.lease > 0 && o.killAfter > o.lease/3:
		err = usagef("--kill-after %s: allowed is at most a third of --lease %s", span(o.killAfter), span(o.lease))
	case o.permits > driver.MaxLimit:
		err = usagef("--permits %d: allowed are 1 to %d", o.permits, driver.MaxLimit)
	case given("limit") && (o.limit < 1 || o.limit > driver.MaxLimit):
		err = usagef("--limit %d: allowed are 1 to %d", o.limit, driver.MaxLimit)
	case given("limit") && o.permits > o.limit:
		err = usagef("--permits %d: allowed are 1 to %d, the --limit", o.permits, o.limit)
	case o.busyCode < 0 || o.busyCode > 255:
		err = usagef("-E %d: allowed are the exit codes 0 to 255", o.busyCode)
	default:
		o.asSet = given("permits") && !given("limit")
		return o.taskOptions.check(c, args)
	}
	return "", nil, err
}

// keeps returns how long --every or --min-hold keeps the name.
func (o *runOptions) keeps() time.Duration { return max(o.minHold, holdfast.TickHold(o.every)) }

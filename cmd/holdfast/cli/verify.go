package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
	"github.com/holdfast-lock/holdfast/open"
)

const aboutVerify = `Test a deployment: real processes take locks of the store, verify injects faults, and then
judges the answers that they got.

Worker processes take mutexes, read/write locks and semaphores under a prefix of their own
(verify/…). They count at a resource that only the newest fencing token may write. Meanwhile
verify stops them for longer than their leases last, kills them, and cuts them off from the
store in several ways: on this machine, between the workers and the network. It does nothing to
the store itself or to other clients, unless you ask for it with --hook. In the end it judges
the histories of all processes: was a lock granted twice, did a client claim one too long, did
the resource take a stale write, did tokens go back, was a waiter forgotten, did a lock stay
taken after a death, was anything left over.

It is safe next to production: the run has names of its own, everything it leaves at the store
expires, and verify removes the rest in the end. It is a load, though: some thousand requests a
second, or fewer with --pause.

--faults chooses among ` + "%s" + `, or none.
--hook NAME='COMMAND' adds a fault of yours: the shell runs COMMAND with one more word, start,
and later with stop.
--worker COMMAND tests another lock: the shell runs COMMAND in place of each worker process, and
verify tells it by lines of JSON what to lock; docs/verify.md of holdfast has the protocol.
--beside N, with --worker, makes N of the processes holdfast's own. Both kinds take the same mutexes,
so the two locks must have one format, as Redisson in Java and the URL's dialect=redisson have.

Exit codes: 0 clean: everything was checked and nothing was found; 1 a promise was broken; 2
inconclusive: the run was too easy, ended too early or could not be judged, and proves nothing.
Otherwise as for every command: 69 the store cannot be reached, 77 it refuses, 78 wrong
configuration (also a duration that is too short for the leases), 64 wrong usage.`

// The exit codes of verify's verdicts.
const (
	exitViolation    = 1
	exitInconclusive = 2
)

// verifyTTL is the TTL without --ttl. It is short because most faults last several TTLs.
const verifyTTL = time.Second

// verifyWorker is the hidden command of the worker processes.
const verifyWorker = "verify-worker"

// Flags that verify and judge share.
const (
	htmlUsage   = "draw the first violation, if there is one, as a page in `FILE`"
	exceptUsage = "`CLASSES` that the deployment does not promise, such as S1,S4 (see docs/history.md): shown, but not as violations"
	slackUsage  = "how late the store may grant a free lock, beyond delays that the TTL explains"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	out    format
	json   bool
	html   string
	hooks  []string
	except []string
	o      verify.Options
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify",
		Short: "Test a deployment with real processes and faults",
		Long:  fmt.Sprintf(aboutVerify, strings.Join(verify.Kinds(), ", ")),
		Example: `  holdfast verify --store redis://cache:6379
  holdfast verify --store postgres://app@db/locks --duration 5m --json
  holdfast verify --store redis://cache:6379 --worker ./my-lock-worker
  holdfast verify --store 'redis://cache:6379?dialect=redisson' --worker ./redisson-worker --beside 2
  holdfast verify --store redis+sentinel://s1,s2,s3/main --hook failover='./failover.sh'
  holdfast verify --store zookeeper://z1,z2,z3 --ttl 5s --duration 2m --seed 7 --keep run7`,
		Args: noArguments,
		RunE: ours(func(c *cobra.Command, _ []string) error {
			if f.json {
				if c.Flags().Changed("output") && f.out != "json" {
					return usagef("--json and -o %s contradict each other", f.out)
				}
				f.out = "json"
			}
			// In Options, a value that is not positive means the default.
			if err := positive(c, "duration", "ops", "processes", "clients", "loops", "names", "slack"); err != nil {
				return err
			}
			if err := checkTTL(f.o.TTL); err != nil {
				return err
			}
			if c.Flags().Changed("beside") {
				if f.o.External == "" {
					return usagef("--beside needs --worker: the processes beside holdfast's%s", helpHint(c))
				}
				if err := positive(c, "beside"); err != nil {
					return err
				}
			}
			for _, flag := range []string{"clients", "mix"} {
				if f.o.External != "" && c.Flags().Changed(flag) && (flag == "mix" || f.o.Beside == 0) {
					return usagef("--%s does not apply to --worker, whose locks are mutexes%s", flag, helpHint(c))
				}
			}
			return a.verify(&f)
		}),
	}
	f.out.register(c, "text", "json")
	flags := c.Flags()
	ttlVar(flags, &f.o.TTL, verifyTTL) // in place of the flag of all commands, for its default
	flags.BoolVar(&f.json, "json", false, "the same as -o json")
	flags.StringVar(&f.o.External, "worker", "",
		"run `COMMAND` as each worker process: a lock other than holdfast")
	flags.IntVar(&f.o.Beside, "beside", 0,
		"with --worker: `N` of the processes are holdfast's own and share the locks with the others (default: none)")
	flags.StringVar(&f.html, "html", "", htmlUsage)
	flags.StringVar(&f.o.Dir, "keep", "",
		"keep the histories in `DIR`, of your own, which must be empty or not exist (default: a temporary folder, kept if something was found)")
	durationVar(flags, &f.o.Duration, "duration", 30*time.Second, "how long the workers work")
	flags.Int64Var(&f.o.Ops, "ops", 300_000, fmt.Sprintf(
		"end earlier after this many grants, at most %d; judging takes 3.5 kB of memory for each", verify.MaxOps))
	flags.IntVar(&f.o.Processes, "processes", 4, "worker processes")
	flags.IntVar(&f.o.Clients, "clients", 2, "clients (sessions) in each process")
	flags.IntVar(&f.o.Loops, "loops", 8, "goroutines that take locks, in each process")
	flags.IntVar(&f.o.Names, "names", 2, "names of each kind of lock")
	durationVar(flags, &f.o.Pause, "pause", 0, "how long each goroutine rests between two locks, on average, for less load")
	flags.StringVar(&f.o.Mix, "mix", verify.MixAll, "kinds of locks: all that the store has, or mutex")
	flags.Uint64Var(&f.o.Seed, "seed", 0, "repeat the schedule of faults of an earlier run (default: a random one)")
	flags.StringSliceVar(&f.o.Kinds, "faults", nil, "do only these `KINDS` of faults (KIND[,KIND...], or none)")
	flags.StringArrayVar(&f.hooks, "hook", nil, "another kind of fault, as `NAME=COMMAND` (repeatable)")
	flags.StringSliceVar(&f.except, "except", nil, exceptUsage)
	durationVar(flags, &f.o.Slack, "slack", time.Second, slackUsage)
	kinds := append(verify.Kinds(), verify.KindNone)
	_ = c.RegisterFlagCompletionFunc("faults", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("mix", cobra.FixedCompletions([]string{verify.MixAll, verify.MixMutex},
		cobra.ShellCompDirectiveNoFileComp))
	return c
}

// verifyWorkerCommand returns the command that verify starts. Its first line of input has its task.
func (a *app) verifyWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    verifyWorker,
		Short:  "A worker process of holdfast verify",
		Hidden: true,
		Args:   noArguments,
		RunE: ours(func(*cobra.Command, []string) error {
			return verify.Work(context.Background(), os.Stdin, os.Stdout)
		}),
	}
}

// options returns the options that the flags set.
func (f *verifyFlags) options() (o verify.Options, err error) {
	for _, h := range f.hooks {
		name, command, ok := strings.Cut(h, "=")
		if !ok || name == "" || strings.TrimSpace(command) == "" {
			return o, usagef("--hook %s: expected NAME=COMMAND", show(h))
		}
		f.o.Faults = append(f.o.Faults, verify.Hook(name, command))
	}
	f.o.Except, err = exceptions(f.except)
	return f.o, err
}

// exceptions returns the classes of --except.
func exceptions(except []string) (list []history.Class, err error) {
	for _, class := range except {
		c := history.Class(strings.ToUpper(class))
		if !slices.Contains(history.Classes, c) || c == history.V {
			return nil, usagef("--except %s: allowed are S1 to S5 and L1 to L4", show(class))
		}
		list = append(list, c)
	}
	return list, nil
}

func (a *app) verify(f *verifyFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if o.External != "" && a.url() == "" {
		return usagef("--worker needs the URL of a store: --store")
	}
	page, err := createPage("--html", f.html)
	if err != nil {
		return err
	}
	defer page.discard()
	o.URL = a.url()
	o.Worker = func() *exec.Cmd {
		cmd := exec.Command(exe, verifyWorker)
		cmd.Env = open.Environ()
		return cmd
	}
	o.Say = func(text string) { a.say("%s", text) }
	ctx, stop := endOnSignal()
	defer stop()
	r, err := verify.Run(ctx, o)
	var worker *verify.WorkerError
	var caught signaled
	switch {
	case err != nil && errors.As(context.Cause(ctx), &caught):
		return caught
	case errors.Is(err, verify.ErrDuration):
		return &failure{exitConfig, fmt.Errorf("--duration: %w", err)}
	case errors.As(err, &worker) && worker.External:
		return &failure{exitConfig, fmt.Errorf("--worker: %w", err)}
	case errors.As(err, &worker) && slices.Contains([]int{exitUnavailable, exitRefused, exitConfig}, worker.Code):
		return &failure{worker.Code, err}
	case err != nil:
		return err
	}
	return a.verdict(r, f.out, page)
}

// verdict prints a result, and returns its exit code. The page shows the first violation.
func (a *app) verdict(r *verify.Result, out format, page *page) (err error) {
	if out == "json" {
		err = writeJSON(a.stdout, toVerifyJSON(r), true)
	} else {
		_, err = fmt.Fprint(a.stdout, replaceHidden(r.Text(), escaped)) // names may be of other programs
	}
	if err != nil {
		return err
	}
	if all := r.Report.Violations(); len(all) > 0 {
		if err := page.write(func(w io.Writer) error { return r.Report.Draw(w, all[0]) }); err != nil {
			return err
		}
	} else if page.f != nil {
		a.say("--html: there is no violation to draw")
	}
	switch r.Outcome {
	case history.Violated:
		return &failure{code: exitViolation}
	case history.Inconclusive:
		return &failure{code: exitInconclusive}
	}
	return nil
}

// endOnSignal returns a context that ends at the first signal that asks to end. The next signal
// ends the process, as it would by default.
func endOnSignal() (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(signaled{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

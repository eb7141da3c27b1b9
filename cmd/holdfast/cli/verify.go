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

	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
	"github.com/holdfast-lock/holdfast/history"
)

const aboutVerify = `Try a deployment: real processes take locks of the store, faults are done to them, and what they were told is judged.

Some worker processes take mutexes, read/write locks and semaphores under a prefix of their own (verify/…), and count
at a resource that only the newest fencing token may write. Meanwhile they are stopped for longer than their leases
last, killed, and cut off from the store in several ways: on this machine, between the workers and the network. Nothing
is done to the store itself and to other clients, unless you ask for it with --hook. In the end the histories of all
processes are judged: was a lock granted twice, did a client claim it too long, was a stale write taken, did tokens go
back, was a waiter forgotten, did a lock stay away after a death, was anything left over.

Safe beside production: the names are the run's own, everything at the store runs out by itself, and what is left is
removed in the end. It is load, though: some thousand requests a second, or with --pause fewer.

--faults chooses among ` + "%s" + `, or none.
--hook NAME='COMMAND' adds a fault of yours: the shell runs COMMAND with one more word, start, and later with stop.

Exit codes: 0 clean: everything was checked and nothing was found; 1 a promise was broken; 2 inconclusive: the run was
too easy, ended too early or could not be judged, and proves nothing. Else as everywhere: 69 the store cannot be
reached, 77 it refuses, 78 wrong configuration (also: a duration that is too short for the leases), 64 wrong usage.`

// The exit codes of verify's verdicts.
const (
	exitViolation    = 1
	exitInconclusive = 2
)

// verifyTTL is what verify asks for if --ttl is not given: most faults last some TTLs.
const verifyTTL = time.Second

// verifyWorker is the hidden command of the worker processes.
const verifyWorker = "verify-worker"

// verifyFlags are the command's own.
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
		Short: "Try a deployment with real processes and faults, and judge what happened",
		Long:  fmt.Sprintf(aboutVerify, strings.Join(verify.Kinds(), ", ")),
		Example: `  holdfast verify --store redis://cache:6379
  holdfast verify --store postgres://app@db/locks --duration 5m --json
  holdfast verify --store redis+sentinel://s1,s2,s3/main --hook failover='./failover.sh'
  holdfast verify --store zookeeper://z1,z2,z3 --ttl 5s --duration 2m --seed 7 --keep /tmp/run7`,
		Args: noArguments,
		RunE: ours(func(c *cobra.Command, _ []string) error {
			if f.json {
				if c.Flags().Changed("output") && f.out != "json" {
					return usagef("--json and -o %s contradict each other", f.out)
				}
				f.out = "json"
			}
			// Options take what is not positive for the default.
			if err := positive(c, "duration", "ops", "processes", "clients", "loops", "names", "slack"); err != nil {
				return err
			}
			f.o.TTL = verifyTTL
			if c.Flags().Changed("ttl") {
				f.o.TTL = a.ttl
			}
			return a.verify(&f)
		}),
	}
	f.out.register(c, "text", "json")
	flags := c.Flags()
	flags.BoolVar(&f.json, "json", false, "the same as -o json")
	flags.StringVar(&f.html, "html", "", "draw the first violation, if there is one, as a page in `FILE`")
	flags.StringVar(&f.o.Dir, "keep", "", "keep the histories in `DIR`, which must be empty or not exist (default: a temporary folder, kept if something was found)")
	flags.DurationVar(&f.o.Duration, "duration", 30*time.Second, "how long the workers work")
	flags.Int64Var(&f.o.Ops, "ops", 300_000, fmt.Sprintf("end earlier after so many grants, at most %d; judging takes 3.5 kB of memory for each", verify.MaxOps))
	flags.IntVar(&f.o.Processes, "processes", 4, "worker processes")
	flags.IntVar(&f.o.Clients, "clients", 2, "clients (sessions) in each process")
	flags.IntVar(&f.o.Loops, "loops", 8, "goroutines that take locks, in each process")
	flags.IntVar(&f.o.Names, "names", 2, "names of each kind of lock")
	flags.DurationVar(&f.o.Pause, "pause", 0, "how long each goroutine rests between two locks, on average: less load")
	flags.StringVar(&f.o.Mix, "mix", verify.MixAll, "kinds of locks: all that the store has, or mutex")
	flags.Uint64Var(&f.o.Seed, "seed", 0, "repeat the schedule of faults of an earlier run (default: a random one)")
	flags.StringSliceVar(&f.o.Kinds, "faults", nil, "do these `KINDS` of faults only (KIND[,KIND...], or none)")
	flags.StringArrayVar(&f.hooks, "hook", nil, "`NAME=COMMAND`: a further kind of fault; may be given several times")
	flags.StringSliceVar(&f.except, "except", nil, "`CLASSES` that the deployment does not promise, such as S1,S4: shown, and no violation")
	flags.DurationVar(&f.o.Slack, "slack", time.Second, "how late a free lock may be granted, beyond what the TTL explains")
	kinds := append(verify.Kinds(), verify.KindNone)
	_ = c.RegisterFlagCompletionFunc("faults", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("mix", cobra.FixedCompletions([]string{verify.MixAll, verify.MixMutex}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// verifyWorkerCommand is what verify starts; its first line of input says what to do.
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

// options completes what the flags say.
func (f *verifyFlags) options() (o verify.Options, err error) {
	for _, h := range f.hooks {
		name, command, ok := strings.Cut(h, "=")
		if !ok || name == "" || strings.TrimSpace(command) == "" {
			return o, usagef("--hook %s: expected NAME=COMMAND", show(h))
		}
		f.o.Faults = append(f.o.Faults, verify.Hook(name, command))
	}
	for _, class := range f.except {
		c := history.Class(strings.ToUpper(class))
		if !slices.Contains(history.Classes, c) || c == history.V {
			return o, usagef("--except %s: there are S1 to S5 and L1 to L4", show(class))
		}
		f.o.Except = append(f.o.Except, c)
	}
	return f.o, nil
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
	page, err := createPage(f.html)
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
	var came signaled
	switch {
	case err != nil && errors.As(context.Cause(ctx), &came):
		return came
	case errors.As(err, &worker) && slices.Contains([]int{exitUnavailable, exitRefused, exitConfig}, worker.Code):
		return &failure{worker.Code, err}
	case err != nil:
		return err
	}
	if f.out == "json" {
		err = writeJSON(a.stdout, toVerifyJSON(r), true)
	} else {
		_, err = fmt.Fprint(a.stdout, r.Text())
	}
	if err != nil {
		return err
	}
	if all := r.Report.Violations(); len(all) > 0 {
		if err := page.write(func(w io.Writer) error { return r.Report.Draw(w, all[0]) }); err != nil {
			return err
		}
	} else if f.html != "" {
		a.say("--html: there is no violation to be drawn")
	}
	switch r.Outcome {
	case history.Violated:
		return &failure{code: exitViolation}
	case history.Inconclusive:
		return &failure{code: exitInconclusive}
	}
	return nil
}

// endOnSignal returns a context that ends at the first signal that asks to end. The next one ends the process, as if
// nobody had asked for signals.
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

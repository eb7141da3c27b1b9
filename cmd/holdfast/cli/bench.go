package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/bench"
)

const aboutBench = `Measure a deployment: how long it takes from this machine to get, release and hand over locks.

  exchange            one read of a name that is not in use: the cheapest exchange with this store
  pair                Lock and Release of one name, one goroutine
  names/64            Lock and Release, 64 goroutines of one client on 64 names
  one/2, one/16       so many clients want one name: the hand-over from one to the next
  one/128-goroutines  128 goroutines of one client want one name: the hand-over

The exchange is the floor: the table shows P50 as a multiple of its P50, and --json and --html also P90
and P99. It is the driver's own read, not the raw client library of the store. A hand-over is the
time from the call of Release until the next holder has the lock. JAIN is 1 if every contender got
the lock equally often. The critical sections are empty. Each client of one/N has a session and
connections of its own.

bench takes locks under a prefix of its own (bench/…) and releases them all, also after ctrl-C,
which ends it at once. The store forgets the last token of a free name later, as it does for every
lock. bench is a load: as many requests as the store can serve, from up to 16 clients. All of them
are in this process, so its CPU may be the limit.

-o go writes the benchmark format of Go, a line for each of --count rounds, so that benchstat can
compare two runs. ns/op is the time divided by the operations; the other units are p50-ns, p90-ns,
p99-ns, x-exchange (p50 as a multiple of it) and jain. Lines of two stores are compared by
benchstat -ignore store.

Exit codes: 0 if everything was measured without an error. Otherwise as for every command, for the
first error: 69 the store cannot be reached, 77 it refuses, 78 wrong configuration. The row of a
workload that failed says so, and the others keep their figures. 64 wrong usage.`

// benchFlags are the flags of bench.
type benchFlags struct {
	out       format
	json      bool
	html      string
	scenario  string
	histogram bool
	duration  time.Duration
	count     int
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast the locks of a deployment are",
		Long:  aboutBench,
		Example: `  holdfast bench --store redis://cache:6379
  holdfast bench --store postgres://app@db/locks --scenario '^(pair|one/16)$' --histogram
  holdfast bench --store zookeeper://z1,z2,z3 --count 5 --html bench.html
  holdfast bench --count 10 -o go >new.txt && benchstat old.txt new.txt`,
		Args: noArguments,
		RunE: ours(func(c *cobra.Command, _ []string) error {
			if f.json {
				if c.Flags().Changed("output") && f.out != "json" {
					return usagef("--json and -o %s contradict each other", f.out)
				}
				f.out = "json"
			}
			if f.histogram && f.out != "table" {
				return usagef("--histogram and -o %s contradict each other%s", f.out, helpHint(c))
			}
			if f.duration < bench.MinDuration || f.duration > bench.MaxDuration {
				return usagef("--duration %s: allowed are %s to %s", span(f.duration), span(bench.MinDuration),
					span(bench.MaxDuration))
			}
			if f.count < 1 || f.count > bench.MaxCount {
				return usagef("--count %d: allowed are 1 to %d", f.count, bench.MaxCount)
			}
			scenario, err := scenarioOf(f.scenario)
			if err != nil {
				return err
			}
			return a.bench(&f, scenario)
		}),
	}
	f.out.register(c, "table", "json", "go")
	flags := c.Flags()
	flags.BoolVar(&f.json, "json", false, "the same as -o json")
	durationVar(flags, &f.duration, "duration", 3*time.Second, "how long each workload runs, in each round")
	flags.IntVar(&f.count, "count", 1, "rounds: how often each workload runs, interleaved; the table has medians")
	flags.StringVar(&f.scenario, "scenario", "", "run only the workloads whose names `REGEXP` matches (default: all)")
	flags.BoolVar(&f.histogram, "histogram", false, "also draw the distribution of each workload, as text")
	flags.StringVar(&f.html, "html", "", "also write the table and the distributions to `FILE`, as one page")
	_ = c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(bench.Names(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// scenarioOf returns the pattern of --scenario; nil is all workloads.
func scenarioOf(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	p, err := regexp.Compile(text)
	if err != nil {
		return nil, usagef("--scenario %s: %v", show(text), err)
	}
	if !bench.Matches(p) {
		return nil, usagef("--scenario %s: no workload has such a name; they are %s", show(text),
			strings.Join(bench.Names(), ", "))
	}
	return p, nil
}

// bench measures, prints what was measured, and returns the first error.
func (a *app) bench(f *benchFlags, scenario *regexp.Regexp) error {
	page, err := createPage("--html", f.html)
	if err != nil {
		return err
	}
	defer page.discard()
	ctx, stop := endOnSignal()
	defer stop()
	cfg := holdfast.Config{Program: "holdfast bench", Labels: a.labelled(nil)}
	var r *bench.Result
	err = a.with(ctx, cfg, func(s *session) (err error) {
		cfg.TTL = a.ttl
		r, err = bench.Run(ctx, bench.Options{Store: s.store, URL: a.url(), Config: cfg, Duration: f.duration,
			Count: f.count, Scenario: scenario, Say: func(text string) { a.say("%s", text) }})
		return err
	})
	var caught signaled
	if errors.As(context.Cause(ctx), &caught) {
		err = caught
	}
	if r == nil || !r.Measured() {
		return err
	}
	return errors.Join(a.printBench(r, f), page.write(r.WriteHTML), err)
}

func (a *app) printBench(r *bench.Result, f *benchFlags) (err error) {
	switch f.out {
	case "json":
		err = writeJSON(a.stdout, toBenchJSON(r), true)
	case "go":
		err = r.WriteGo(a.stdout)
	default:
		_, err = io.WriteString(a.stdout, r.Text(f.histogram))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

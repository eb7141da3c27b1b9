//go:build linux

// Package torture injects into every store the faults that its deployment promises to withstand,
// under the load of verify.
package torture

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// tortureSize is how long each store runs.
type tortureSize struct {
	duration time.Duration
	ops      int64
	grants   int // required of each store
	faults   int // required of each store
	atOnce   int // how many stores at a time
	stores   []string
}

// tortureSizes are the sizes for HOLDFAST_TEST_TORTURE. The smallest is part of every test run.
// Five minutes for all stores together are for machines with other work.
var tortureSizes = map[string]tortureSize{
	"":      {8 * time.Second, 100_000, 50, 1, 2, []string{"redis", "sqlite"}},
	"short": {38 * time.Second, 100_000, 100, 3, 2, nil},
	"full":  {4 * time.Minute, 500_000, 5_000, 30, 1, nil},
	"night": {40 * time.Minute, verify.MaxOps, 50_000, 300, 1, nil},
}

// brief is a run that fits next to other tests, with little load and the same schedule of faults
// every time. It is judged as on a slow machine.
func brief(o verify.Options) verify.Options {
	o.Processes, o.Loops, o.Pause, o.Slack, o.Seed = 3, 4, 50*time.Millisecond, 8*time.Second, cmp.Or(o.Seed, 1)
	return o
}

// tortureTTL is short, so that many leases expire.
const tortureTTL = time.Second

// TestTorture runs verify against every store, with faults of the servers that the store promises
// to withstand: killed, frozen, failed over, emptied, cut off. Without HOLDFAST_TEST_TORTURE it
// tests two stores for some seconds. =short takes five minutes, as at full size of all tests, =full
// 35, =night ten times as long. TORTURE_SEED repeats schedules of faults.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test kills servers and processes for minutes")
	}
	name := os.Getenv("HOLDFAST_TEST_TORTURE")
	if name == "" && testenv.Deep() {
		name = "short"
	}
	size, ok := tortureSizes[name]
	if !ok {
		t.Fatalf("HOLDFAST_TEST_TORTURE=%s: allowed are short, full, night, or no value", name)
	}
	var seed uint64
	if s := os.Getenv("TORTURE_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatalf("TORTURE_SEED=%s: %v", s, err)
		}
	}
	total := tally{faults: map[string]int{}}
	gate := make(chan struct{}, size.atOnce)
	for _, s := range deployments {
		if size.stores != nil && !slices.Contains(size.stores, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			gate <- struct{}{}
			defer func() { <-gate }()
			o := verify.Options{
				Worker: worker, Processes: 4, Clients: 2, Loops: 6, Names: 2, TTL: tortureTTL, Duration: size.duration,
				Ops:  size.ops,
				Seed: seed, Slack: 3 * time.Second, Own: true, Say: func(text string) { t.Log(text) },
			}
			if size.stores != nil {
				o = brief(o)
			}
			s.start(t, &o)
			r, err := verify.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s\n%s", s.name, r.Text())
			if r.Outcome != history.Clean {
				t.Errorf("%s; TORTURE_SEED=%d", r.Outcome, r.Seed)
			}
			if !slices.Equal(r.Excepted, s.excepted) {
				t.Errorf("%v were excepted; want %v", r.Excepted, s.excepted)
			}
			if r.Figures.Grants < size.grants || r.Counted() < size.faults {
				t.Errorf("%d grants and %d faults; at least %d and %d are required", r.Figures.Grants, r.Counted(), size.grants,
					size.faults)
			}
			total.add(s.name, r)
		})
	}
	t.Cleanup(func() { t.Log(total.String()) }) // when all have ended
}

// tally sums up the runs of all stores.
type tally struct {
	mu     sync.Mutex
	rows   []string
	grants int
	faults map[string]int
}

func (y *tally) add(name string, r *verify.Result) {
	y.mu.Lock()
	defer y.mu.Unlock()
	f := &r.Figures
	y.rows = append(y.rows, fmt.Sprintf("| %s | %d | %d of %d kinds | %d | %v | %v | %v |", name, f.Grants, r.Counted(),
		len(r.Faults),
		len(r.Report.Violations()), f.HandOver, f.Recovery, f.LongestLockOut.Round(time.Millisecond)))
	y.grants += f.Grants
	for _, c := range r.Faults {
		y.faults[c.Kind] += c.N
	}
}

// String returns a table for a document, and the sums.
func (y *tally) String() string {
	n := 0
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(y.faults)) {
		n += y.faults[k]
		kinds = append(kinds, fmt.Sprintf("%s %d", k, y.faults[k]))
	}
	return fmt.Sprintf("\n%s\n%d grants, %d faults of %d kinds: %s", strings.Join(y.rows, "\n"), y.grants, n, len(kinds),
		strings.Join(kinds, ", "))
}

// fault makes a Fault. begin returns a function that ends it, or nil. Faults with the same locker
// exclude each other: a store need not withstand two at once.
func fault(one sync.Locker, kind string, begin func() (end func())) verify.Fault {
	return verify.Fault{Kind: kind, Inject: func(ctx context.Context) (func(context.Context) error, error) {
		one.Lock()
		begun := false
		defer func() {
			if !begun { // the test has failed in it
				one.Unlock()
			}
		}()
		end := begin()
		begun = true
		return func(context.Context) error {
			defer one.Unlock()
			if end != nil {
				end()
			}
			return nil
		}, nil
	}}
}

const workerEnv = "HOLDFAST_TORTURE_WORKER"

// TestMain runs the tests, or one worker: the test's program is its own worker.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := verify.Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func worker() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	return cmd
}

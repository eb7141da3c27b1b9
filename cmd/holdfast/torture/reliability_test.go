//go:build linux

package torture

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
	"github.com/holdfast-lock/holdfast/history"
)

// goal is one kind of trouble in numbers: the stores go through it until it was enough, and have to come out clean.
type goal struct {
	name   string
	stores []string // each has its share of due
	kinds  []string // of what verify does by itself; nil: nothing
	own    []string // of what the ordeals do to servers
	shape  func(verify.Options) verify.Options
	count  func(*verify.Result) int
	due    int
	once   int // due in a brief run, of the first store; 0: there is none

	lossless    bool // no lease may be lost
	unconfirmed bool // no replica confirms what is granted: it is granted twice, which is seen, and refused by what it guards
}

var goals = []goal{
	{
		name: "a crowd", stores: []string{"redis"}, kinds: verify.Kinds(), due: 500_000, count: grants,
		own: []string{"server-killed", "server-frozen", "clients-thrown-out", "subscribers-thrown-out", "scripts-forgotten", "server-paused", "connections-taken"},
		shape: func(o verify.Options) verify.Options {
			o.Processes, o.Clients, o.Loops, o.Names, o.Ops = 64, 1, 2, 6, 600_000
			return o
		},
	},
	{
		name: "failovers", stores: []string{"sentinel", "cluster"}, due: 50, count: (*verify.Result).Counted, once: 1,
		own: []string{"primary-killed", "primary-frozen", "failover", "primary-killed-alone", "primary-cut-off"},
	},
	{
		name: "splits", stores: []string{"sentinel", "cluster"}, due: 20, count: (*verify.Result).Counted, own: []string{"primary-cut-off"}, unconfirmed: true,
	},
	{
		name: "planned failovers", stores: []string{"replicated"}, due: 50, once: 2, count: done("handed-over"), own: []string{"handed-over"},
	},
	{
		name: "read-only", stores: []string{"redis", "mariadb", "postgres"}, due: 60, count: done("read-only"), own: []string{"read-only"},
	},
	{
		name: "damaged records", stores: []string{"redis", "quorum", "sqlite", "mariadb", "postgres"}, due: 50, lossless: true,
		count: done("record-damaged"), own: []string{"record-damaged"}, shape: steady,
	},
	{
		name: "dead and late connections", stores: []string{"redis", "quorum", "zookeeper", "mariadb", "postgres"},
		kinds: []string{verify.KindForget, verify.KindLate}, due: 200, once: 2, count: done(verify.KindForget, verify.KindLate),
	},
	{
		name: "a minority", stores: []string{"quorum"}, due: 150, once: 1, count: done("server-restarted-empty", "server-frozen", "clock-set"),
		own: []string{"server-restarted-empty", "server-frozen", "clock-set"},
	},
	{
		name: "elections", stores: []string{"zookeeper"}, kinds: []string{verify.KindStop}, due: 48, count: (*verify.Result).Counted,
		own: []string{"leader-killed", "leader-frozen", "follower-killed", "follower-frozen", "follower-cut-off"},
	},
	{
		name: "pauses", stores: []string{"redis", "sentinel", "cluster", "quorum", "zookeeper", "mariadb", "postgres", "sqlite"},
		kinds: []string{verify.KindStop}, due: 500, count: done(verify.KindStop), shape: brisk,
	},
	{
		name: "deaths", stores: []string{"redis", "sqlite", "postgres", "zookeeper"}, kinds: []string{verify.KindKill}, due: 1000, shape: brisk,
		count: func(r *verify.Result) int { return r.Figures.Recovery.N },
	},
	{
		name: "lost replies", stores: []string{"redis", "cluster", "quorum", "zookeeper", "mariadb", "postgres"}, kinds: []string{verify.KindDropReplies},
		due: 1000, count: func(r *verify.Result) int { return r.Lost },
	},
	{
		name: "lost wake-ups", stores: []string{"redis"}, own: []string{"subscribers-thrown-out"}, due: 500, count: done("subscribers-thrown-out"), shape: brisk,
	},
	{
		name: "a long line", stores: []string{"redis", "sqlite"}, kinds: []string{verify.KindStop}, due: 40_000, count: grants,
		shape: func(o verify.Options) verify.Options {
			o.Loops, o.Clients, o.Names, o.Mix = 64, 16, 1, verify.MixMutex
			return o
		},
	},
	{
		name: "backends", stores: []string{"postgres"}, own: []string{"backends-terminated", "backend-killed", "server-killed"}, due: 200, count: (*verify.Result).Counted,
	},
	{
		name: "many processes", stores: []string{"sqlite"}, kinds: []string{verify.KindStop, verify.KindKill}, due: 350, count: (*verify.Result).Counted,
		shape: func(o verify.Options) verify.Options {
			o.Processes, o.Clients, o.Loops = 32, 1, 2
			return brisk(o)
		},
	},
}

// brisk has short leases, so that what lasts a multiple of them passes sooner.
func brisk(o verify.Options) verify.Options {
	o.TTL = min(o.TTL, tortureTTL/2)
	return o
}

// steady has leases so long that a busy machine renews them in time, and a mutex for each client beside those that are
// judged.
func steady(o verify.Options) verify.Options {
	o.TTL, o.Own = max(o.TTL, 3*tortureTTL), true
	return o
}

func grants(r *verify.Result) int { return r.Figures.Grants }

func done(kinds ...string) func(*verify.Result) int {
	return func(r *verify.Result) (n int) {
		for _, c := range r.Faults {
			if slices.Contains(kinds, c.Kind) {
				n += c.N
			}
		}
		return n
	}
}

// TestReliability goes through each kind of trouble as often as HOLDFAST_TEST_RELIABILITY says: full takes an hour and a
// half, tenth ten minutes. Without it some kinds are gone through once or twice. Its subtests are the goals; -run
// chooses. What it prints last are lines of a table.
func TestReliability(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test kills servers and processes")
	}
	part, ok := map[string]int{"": 0, "full": 1, "tenth": 10}[os.Getenv("HOLDFAST_TEST_RELIABILITY")]
	if !ok {
		t.Fatalf("HOLDFAST_TEST_RELIABILITY=%s: there are full and tenth, or nothing", os.Getenv("HOLDFAST_TEST_RELIABILITY"))
	}
	gate := make(chan struct{}, 2)
	for _, g := range goals {
		if part == 0 && g.once == 0 {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			gate <- struct{}{}
			defer func() { <-gate }()
			var sum tallied
			if part == 0 {
				g.pursue(t, g.stores[0], g.once, 0, &sum)
				return
			}
			for _, store := range g.stores {
				t.Run(store, func(t *testing.T) {
					g.pursue(t, store, max(1, g.due/part/len(g.stores)), time.Minute/time.Duration(min(part, 3)), &sum)
				})
			}
			t.Logf("\n| %s | %s | %s |", g.name, strings.Join(g.stores, ", "), &sum)
		})
	}
}

// pursue has a store go through it, in runs of some length, until it was often enough. No length is that of a brief run.
func (g *goal) pursue(t *testing.T, store string, due int, length time.Duration, sum *tallied) {
	o := verify.Options{
		Worker: worker, Processes: 4, Clients: 2, Loops: 6, Names: 2, TTL: tortureTTL, Duration: length, Ops: verify.MaxOps,
		Slack: 3 * time.Second,
	}
	if g.shape != nil {
		o = g.shape(o)
	}
	if length == 0 {
		o = brief(o)
		o.Duration = 7 * o.TTL
	}
	i := slices.IndexFunc(ordeals, func(s ordeal) bool { return s.name == store })
	ordeals[i].start(t, &o)
	o.Faults = slices.DeleteFunc(o.Faults, func(f verify.Fault) bool { return !slices.Contains(g.own, f.Kind) })
	if len(o.Faults) != len(g.own) {
		t.Fatalf("%d of %v are done to %s", len(o.Faults), g.own, store)
	}
	if g.unconfirmed {
		o.URL, _, _ = strings.Cut(o.URL, "?")
	}
	if o.Kinds = g.kinds; g.kinds == nil {
		o.Kinds = []string{verify.KindNone}
	}
	const most = 100
	reached, twice := 0, 0
	for run := 0; reached < due; run++ {
		if run == most {
			t.Fatalf("%d of %d after %d runs", reached, due, run)
		}
		r, err := verify.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome != history.Clean {
			t.Fatalf("%s\n%s", r.Outcome, r.Text())
		}
		if g.lossless && r.Figures.Lost > 0 {
			t.Errorf("%d leases were lost\n%s", r.Figures.Lost, r.Text())
		}
		reached += g.count(r)
		twice += r.Report.Verdict(history.S1).Count
		sum.add(r)
		t.Logf("%d of %d after %d runs: %d grants, %d faults, recovery %v, waits at most %v, nobody served for %v at most",
			reached, due, run+1, r.Figures.Grants, r.Counted(), r.Figures.Recovery, r.Figures.LongestWait, r.Figures.LongestLockOut)
	}
	sum.reached += reached
	if g.unconfirmed {
		t.Logf("%d grants beside another", twice)
		if twice == 0 {
			t.Error("nothing was granted twice, so nothing was proven")
		}
	}
}

// tallied is what some runs had.
type tallied struct {
	reached, grants, faults, lost, recovered int
	recovery, wait                           time.Duration // the longest
}

func (s *tallied) add(r *verify.Result) {
	s.grants += r.Figures.Grants
	s.faults += r.Counted()
	s.lost += r.Lost
	s.recovered += r.Figures.Recovery.N
	s.recovery, s.wait = max(s.recovery, r.Figures.Recovery.Max), max(s.wait, r.Figures.LongestWait)
}

func (s *tallied) String() string {
	recovery := cmp.Or(strings.Repeat(fmt.Sprintf("%.2f s", s.recovery.Seconds()), min(1, s.recovered)), "not seen")
	return fmt.Sprintf("%d | %d | %d | %s | %.1f s", s.reached, s.grants, s.faults, recovery, s.wait.Seconds())
}

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

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
)

// quota is a number of faults of one kind. The stores must survive it without a violation.
type quota struct {
	name   string
	stores []string // each has its share of due
	kinds  []string // faults by verify itself; nil: none
	own    []string // faults of the deployments' servers
	shape  func(verify.Options) verify.Options
	count  func(*verify.Result) int
	due    int
	once   int // due in a brief run, of the first store; 0: none

	lossless bool // no lease may be lost
	// No replica confirms grants: some are granted twice, verify reports it, and the resource
	// refuses the stale one.
	unconfirmed bool
}

var quotas = []quota{
	{
		name: "many clients", stores: []string{"redis"}, kinds: verify.Kinds(), due: 500_000, count: grants,
		own: []string{"server-killed", "server-frozen", "clients-thrown-out", "subscribers-thrown-out", "scripts-forgotten",
			"server-paused", "connections-taken"},
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
		name: "splits", stores: []string{"sentinel", "cluster"}, due: 20, count: (*verify.Result).Counted,
		own: []string{"primary-cut-off"}, unconfirmed: true,
	},
	{
		name: "planned failovers", stores: []string{"replicated"}, due: 50, once: 2, count: done("handed-over"),
		own: []string{"handed-over"},
	},
	{
		name: "read-only", stores: []string{"redis", "mariadb", "postgres"}, due: 60, count: done("read-only"),
		own: []string{"read-only"},
	},
	{
		name: "damaged records", stores: []string{"redis", "quorum", "sqlite", "mariadb", "postgres"}, due: 50,
		lossless: true,
		count:    done("record-damaged"), own: []string{"record-damaged"}, shape: longLeases,
	},
	{
		name: "dead and late connections", stores: []string{"redis", "quorum", "zookeeper", "mariadb", "postgres"},
		kinds: []string{verify.KindForget, verify.KindLate}, due: 200, once: 2,
		count: done(verify.KindForget, verify.KindLate),
	},
	{
		name: "a minority", stores: []string{"quorum"}, due: 150, once: 1,
		count: done("server-restarted-empty", "server-frozen", "clock-set"),
		own:   []string{"server-restarted-empty", "server-frozen", "clock-set"},
	},
	{
		name: "elections", stores: []string{"zookeeper"}, kinds: []string{verify.KindStop}, due: 48,
		count: (*verify.Result).Counted,
		own:   []string{"leader-killed", "leader-frozen", "follower-killed", "follower-frozen", "follower-cut-off"},
	},
	{
		name: "pauses", stores: []string{"redis", "sentinel", "cluster", "quorum", "zookeeper", "mariadb", "postgres",
			"sqlite"},
		kinds: []string{verify.KindStop}, due: 500, count: done(verify.KindStop), shape: shortLeases,
	},
	{
		name: "deaths", stores: []string{"redis", "sqlite", "postgres", "zookeeper"}, kinds: []string{verify.KindKill},
		due: 1000, shape: shortLeases,
		count: func(r *verify.Result) int { return r.Figures.Recovery.N },
	},
	{
		name: "lost replies", stores: []string{"redis", "cluster", "quorum", "zookeeper", "mariadb", "postgres"},
		kinds: []string{verify.KindDropReplies},
		due:   1000, count: func(r *verify.Result) int { return r.Lost },
	},
	{
		name: "lost pushes", stores: []string{"redis"}, own: []string{"subscribers-thrown-out"}, due: 500,
		count: done("subscribers-thrown-out"), shape: shortLeases,
	},
	{
		name: "a long queue", stores: []string{"redis", "sqlite"}, kinds: []string{verify.KindStop}, due: 40_000,
		count: grants,
		shape: func(o verify.Options) verify.Options {
			o.Loops, o.Clients, o.Names, o.Mix = 64, 16, 1, verify.MixMutex
			return o
		},
	},
	{
		name: "backends", stores: []string{"postgres"}, own: []string{"backends-terminated", "backend-killed",
			"server-killed"}, due: 200, count: (*verify.Result).Counted,
	},
	{
		name: "many processes", stores: []string{"sqlite"}, kinds: []string{verify.KindStop, verify.KindKill}, due: 350,
		count: (*verify.Result).Counted,
		shape: func(o verify.Options) verify.Options {
			o.Processes, o.Clients, o.Loops = 32, 1, 2
			return shortLeases(o)
		},
	},
}

// shortLeases shortens leases, and with them all times that are multiples of a TTL.
func shortLeases(o verify.Options) verify.Options {
	o.TTL = min(o.TTL, tortureTTL/2)
	return o
}

// longLeases has leases so long that a busy machine renews them in time. Each client also holds a
// mutex of its own.
func longLeases(o verify.Options) verify.Options {
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

// TestReliability runs every quota as often as HOLDFAST_TEST_RELIABILITY says: full takes an hour
// and a half, tenth ten minutes. Without it some quotas run once or twice. Each quota is a subtest,
// which -run can select. The last output is the lines of a table.
func TestReliability(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test kills servers and processes")
	}
	part, ok := map[string]int{"": 0, "full": 1, "tenth": 10}[os.Getenv("HOLDFAST_TEST_RELIABILITY")]
	if !ok {
		t.Fatalf("HOLDFAST_TEST_RELIABILITY=%s: allowed are full, tenth, or no value", os.Getenv("HOLDFAST_TEST_RELIABILITY"))
	}
	gate := make(chan struct{}, 2)
	for _, q := range quotas {
		if part == 0 && q.once == 0 {
			continue
		}
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			gate <- struct{}{}
			defer func() { <-gate }()
			var sum tallied
			if part == 0 {
				q.meet(t, q.stores[0], q.once, 0, &sum)
				return
			}
			for _, store := range q.stores {
				t.Run(store, func(t *testing.T) {
					q.meet(t, store, max(1, q.due/part/len(q.stores)), time.Minute/time.Duration(min(part, 3)), &sum)
				})
			}
			t.Logf("\n| %s | %s | %s |", q.name, strings.Join(q.stores, ", "), &sum)
		})
	}
}

// meet runs the faults at a store, in runs of some length, until the quota is met. length 0 is a
// brief run.
func (q *quota) meet(t *testing.T, store string, due int, length time.Duration, sum *tallied) {
	o := verify.Options{
		Worker: worker, Processes: 4, Clients: 2, Loops: 6, Names: 2, TTL: tortureTTL, Duration: length, Ops: verify.MaxOps,
		Slack: 3 * time.Second,
	}
	if q.shape != nil {
		o = q.shape(o)
	}
	if length == 0 {
		o = brief(o)
		o.Duration = 7 * o.TTL
	}
	i := slices.IndexFunc(deployments, func(s deployment) bool { return s.name == store })
	deployments[i].start(t, &o)
	o.Faults = slices.DeleteFunc(o.Faults, func(f verify.Fault) bool { return !slices.Contains(q.own, f.Kind) })
	if len(o.Faults) != len(q.own) {
		t.Fatalf("%d of the faults %v exist for %s", len(o.Faults), q.own, store)
	}
	if q.unconfirmed {
		o.URL, _, _ = strings.Cut(o.URL, "?")
	}
	if o.Kinds = q.kinds; q.kinds == nil {
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
		if q.lossless && r.Figures.Lost > 0 {
			t.Errorf("%d leases were lost\n%s", r.Figures.Lost, r.Text())
		}
		reached += q.count(r)
		twice += r.Report.Verdict(history.S1).Count
		sum.add(r)
		t.Logf("%d of %d after %d runs: %d grants, %d faults, recovery %v, waits at most %v, no grant for %v at most",
			reached, due, run+1, r.Figures.Grants, r.Counted(), r.Figures.Recovery, r.Figures.LongestWait,
			r.Figures.LongestLockOut)
	}
	sum.reached += reached
	if q.unconfirmed {
		t.Logf("%d grants at the same time as another", twice)
		if twice == 0 {
			t.Error("no lock was granted twice, so the test proves nothing")
		}
	}
}

// tallied is the sum of some runs.
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

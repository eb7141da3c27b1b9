package drivertest

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestAttempts: a check that fails is run again while the machine stands still, and only then; it fails when it never passed.
// What a run opened is closed before the next.
func TestAttempts(t *testing.T) {
	const still = time.Second
	for name, c := range map[string]struct {
		stood []time.Duration // in each run
		fails []bool          // in each run
		want  bool            // it failed
		runs  int
	}{
		"passes":                     {[]time.Duration{still}, []bool{false}, false, 1},
		"fails":                      {[]time.Duration{0}, []bool{true}, true, 1},
		"fails, hardly a pause":      {[]time.Duration{still/20 - 1}, []bool{true}, true, 1},
		"fails, then passes":         {[]time.Duration{still / 20, 0}, []bool{true, false}, false, 2},
		"fails, then fails":          {[]time.Duration{still, 0}, []bool{true, true}, true, 2},
		"fails however often it ran": {[]time.Duration{still, still, still}, []bool{true, true, true}, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			runs := 0
			rec := &recorder{TB: t}
			h := Harness{TTL: still, stalls: func() func() time.Duration {
				return func() time.Duration { return c.stood[runs-1] }
			}}
			h.check(rec, check{"R0", "test", "", func(e *env) {
				runs++
				run := strconv.Itoa(runs)
				e.Cleanup(func() { events = append(events, "closed "+run) })
				e.Cleanup(func() { events = append(events, "closing "+run) })
				if c.fails[runs-1] {
					e.Fatal("failed in run " + run)
				}
				events = append(events, "passed "+run)
			}})
			if rec.Failed() != c.want || runs != c.runs {
				t.Errorf("failed: %v after %d runs; want %v after %d", rec.Failed(), runs, c.want, c.runs)
			}
			var want []string
			for i := range c.runs {
				run := strconv.Itoa(i + 1)
				if !c.fails[i] {
					want = append(want, "passed "+run)
				}
				want = append(want, "closing "+run, "closed "+run)
			}
			if !slices.Equal(events, want) {
				t.Errorf("events: %q; want %q", events, want)
			}
		})
	}
}

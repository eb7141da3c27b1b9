package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is the result of one run, and the JSON file. Durations in it are nanoseconds.
type report struct {
	Started   time.Time
	Finished  time.Time
	Host      string
	CPUs      int
	Go        string
	Redis     string            `json:",omitempty"`
	ZooKeeper string            `json:",omitempty"`
	Curator   string            `json:",omitempty"`
	Redisson  string            `json:",omitempty"`
	MySQL     string            `json:",omitempty"` // or MariaDB
	Postgres  string            `json:",omitempty"`
	Modules   map[string]string // the measured versions
	Duration  string
	Held      string
	Warm      string
	Rounds    int
	Results   []*result
}

// result is one scenario, with a row for each library.
type result struct {
	Scenario string
	Title    string
	Rows     []*row

	columns []column
}

// row is one library in one scenario.
type row struct {
	Library string
	Median  metrics // of the successful rounds
	Spread  metrics // (max - min) / median of the rounds
	Low     metrics // the confidence interval of the median; see interval
	High    metrics
	Rounds  []metrics `json:",omitempty"`
	Errors  []string  `json:",omitempty"`
}

func newReport(s settings, b *testbed) *report {
	r := &report{
		Started: time.Now(), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Duration: s.duration.String(), Held: s.held.String(), Warm: s.warm.String(), Rounds: s.rounds,
		Modules: map[string]string{},
	}
	r.Host, _ = os.Hostname()
	if b.server != nil {
		r.Redis = b.server.version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			r.Modules[m.Path] = m.Version
		}
	}
	return r
}

// note records which servers are measured.
func (r *report) note(b *testbed) {
	if b.zk != nil {
		r.ZooKeeper = b.zk.version
	}
	switch {
	case b.sql == nil:
	case b.sql.sqlKind == mariaDB:
		r.MySQL = b.sql.release
	default:
		r.Postgres = b.sql.release
	}
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// violations counts how often two contenders held a lock at once, in all rounds.
func (r *report) violations() (n int) {
	for _, res := range r.Results {
		for _, row := range res.Rows {
			for _, m := range row.Rounds {
				n += int(m["violations"])
			}
		}
	}
	return n
}

func (r *result) summarize() {
	for _, row := range r.Rows {
		row.Median, row.Spread, row.Low, row.High = metrics{}, metrics{}, metrics{}, metrics{}
		if len(row.Rounds) == 0 {
			continue
		}
		for key := range row.Rounds[0] {
			var all []float64
			for _, m := range row.Rounds {
				all = append(all, m[key])
			}
			slices.Sort(all)
			n := len(all)
			mid := (all[(n-1)/2] + all[n/2]) / 2
			row.Median[key] = mid
			skip, _ := interval(n)
			row.Low[key], row.High[key] = all[skip], all[n-1-skip]
			if mid != 0 {
				row.Spread[key] = (all[n-1] - all[0]) / mid
			}
		}
	}
}

// interval returns which of n sorted rounds bound the confidence interval of the median, as the
// number of rounds below and above it, and its confidence: at least 0.95, or what n rounds allow.
// It assumes nothing about how the figures are distributed: of n rounds, k or fewer lie below the
// true median as often as n coins show k or fewer heads.
func interval(n int) (skip int, confidence float64) {
	const enough = 0.95
	below := math.Pow(0.5, float64(n)) // the probability of at most skip rounds below
	confidence = 1 - 2*below
	for term := below; skip+1 < (n+1)/2; skip++ {
		term *= float64(n-skip) / float64(skip+1)
		if 1-2*(below+term) < enough {
			break
		}
		below += term
		confidence = 1 - 2*below
	}
	return skip, max(confidence, 0)
}

// print writes the table in Markdown. The last columns are about the first figure: the confidence
// interval of its median, with the confidence in brackets, and how far the rounds differ.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n%s\n\n| library |", r.Scenario, r.Title)
	for _, c := range r.columns {
		fmt.Fprintf(w, " %s |", c.head)
	}
	fmt.Fprintf(w, " interval of %s | spread |\n", r.columns[0].head)
	fmt.Fprintf(w, "|---|%s---:|---:|\n", strings.Repeat("---:|", len(r.columns)))
	for _, row := range r.Rows {
		fmt.Fprintf(w, "| %s |", row.Library)
		for _, c := range r.columns {
			cell := "–"
			if v, ok := row.Median[c.key]; ok {
				cell = c.show(v)
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		if len(row.Rounds) < 2 {
			fmt.Fprintln(w, " – | – |") // one round says nothing about the others
			continue
		}
		first := r.columns[0]
		_, confidence := interval(len(row.Rounds))
		fmt.Fprintf(w, " %s – %s (%.0f %%) | %.0f %% |\n", first.show(row.Low[first.key]), first.show(row.High[first.key]),
			100*confidence, 100*row.Spread[first.key])
	}
	for _, row := range r.Rows {
		for _, e := range row.Errors {
			fmt.Fprintf(w, "\n%s failed: %s\n", row.Library, e)
		}
	}
}

// column is one figure of a table.
type column struct {
	key, head string
	show      func(float64) string
}

func dur(key, head string) column { return column{key, head, showDuration} }
func num(key, head string) column { return column{key, head, showNumber} }
func ratio(key, head string) column {
	return column{key, head, func(v float64) string { return fmt.Sprintf("%.3f", v) }}
}
func pct(key, head string) column {
	return column{key, head, func(v float64) string { return fmt.Sprintf("%.2f %%", v) }}
}

func showDuration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e5:
		return fmt.Sprintf("%.1f µs", ns/1e3)
	case ns < 1e6:
		return fmt.Sprintf("%.0f µs", ns/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	default:
		return fmt.Sprintf("%.2f s", ns/1e9)
	}
}

func showNumber(v float64) string {
	switch {
	case v == float64(int64(v)) && v < 1000, v >= 100 && v < 1000:
		return fmt.Sprintf("%.0f", v)
	case v < 100:
		return fmt.Sprintf("%.2f", v)
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

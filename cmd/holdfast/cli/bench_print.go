package cli

import (
	"runtime"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/bench"
)

// benchJSON is the result of bench in JSON. Times are microseconds.
type benchJSON struct {
	Schema     string         `json:"schema"`
	Complete   bool           `json:"complete"` // every workload ran to its end, without an error
	Store      string         `json:"store"`
	TTLMS      int64          `json:"ttl_ms"`
	DurationMS int64          `json:"duration_ms"` // of each workload in each round
	Count      int            `json:"count"`
	CPUs       int            `json:"cpus"` // that this process may use
	Workloads  []benchRowJSON `json:"workloads"`
	Notes      []string       `json:"notes"`
}

type benchRowJSON struct {
	Name         string           `json:"name"`
	Title        string           `json:"title"`
	HandOver     bool             `json:"hand_over"` // the times are those of hand-overs
	Median       *benchRoundJSON  `json:"median"`    // over the rounds; null: there are no figures
	SpreadRate   float64          `json:"spread_per_second"`
	SpreadP50    float64          `json:"spread_p50"`
	Rounds       []benchRoundJSON `json:"rounds"`
	Distribution []benchBarJSON   `json:"distribution"`
	Errors       int              `json:"errors"`
	Error        string           `json:"error,omitempty"` // the first
}

type benchRoundJSON struct {
	Operations int      `json:"operations"`
	TookMS     float64  `json:"took_ms"`
	PerSecond  float64  `json:"per_second"`
	P50        float64  `json:"p50_us"`
	P90        float64  `json:"p90_us"`
	P99        float64  `json:"p99_us"`
	Max        float64  `json:"max_us"`
	TimesP50   float64  `json:"p50_exchanges,omitempty"` // multiples of the median of an exchange
	TimesP90   float64  `json:"p90_exchanges,omitempty"`
	TimesP99   float64  `json:"p99_exchanges,omitempty"`
	Jain       *float64 `json:"jain,omitempty"`
	WaitMax    *float64 `json:"longest_wait_us,omitempty"`
}

type benchBarJSON struct {
	From float64 `json:"from_us"`
	To   float64 `json:"to_us"`
	N    uint64  `json:"n"`
}

// benchBars is how finely JSON shows a distribution: so many parts for each power of ten.
const benchBars = 20

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func toBenchRoundJSON(r bench.Round, contended bool) benchRoundJSON {
	j := benchRoundJSON{
		Operations: r.Ops, TookMS: millis(r.Took), PerSecond: r.PerSecond, P50: micros(r.P50), P90: micros(r.P90),
		P99: micros(r.P99), Max: micros(r.Max), TimesP50: r.TimesP50, TimesP90: r.TimesP90, TimesP99: r.TimesP99,
	}
	if contended {
		wait := micros(r.LongestWait)
		j.Jain, j.WaitMax = &r.Jain, &wait
	}
	return j
}

func toBenchJSON(r *bench.Result) benchJSON {
	out := benchJSON{
		Schema: schema, Complete: r.Complete, Store: r.Store, TTLMS: r.TTL.Milliseconds(),
		DurationMS: r.Duration.Milliseconds(), Count: r.Count, CPUs: runtime.GOMAXPROCS(0), Workloads: []benchRowJSON{},
		Notes: append([]string{}, r.Notes...),
	}
	for _, row := range r.Rows {
		j := benchRowJSON{Name: row.Name, Title: row.Title, HandOver: row.Contended, Rounds: []benchRoundJSON{},
			Distribution: []benchBarJSON{}, Errors: row.Errors}
		if len(row.Rounds) > 0 {
			m := toBenchRoundJSON(row.Median(), row.Contended)
			j.Median = &m
			j.SpreadRate, j.SpreadP50 = row.Spread()
		}
		for _, round := range row.Rounds {
			j.Rounds = append(j.Rounds, toBenchRoundJSON(round, row.Contended))
		}
		for _, b := range row.Latency.Bars(benchBars) {
			j.Distribution = append(j.Distribution, benchBarJSON{micros(b.From), micros(b.To), b.N})
		}
		if row.Err != nil {
			j.Error = row.Err.Error()
		}
		out.Workloads = append(out.Workloads, j)
	}
	return out
}

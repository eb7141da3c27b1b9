package bench

import (
	"math"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/histogram"
)

// Result is what Run has measured.
type Result struct {
	Store    string        // its place, without credentials
	TTL      time.Duration // as the store granted it
	Duration time.Duration // of each workload in each round
	Count    int           // the rounds that were asked for
	Rows     []*Row        // the floor is the first
	Notes    []string      // what this store lacks, and what could not be removed

	// Complete: every workload ran to its end in every round, without an error.
	Complete bool
}

// Measured reports whether any workload has figures.
func (r *Result) Measured() bool {
	return slices.ContainsFunc(r.Rows, func(row *Row) bool { return len(row.Rounds) > 0 })
}

// Row is one workload.
type Row struct {
	Name, Title string
	Contended   bool                // several goroutines wanted one name: the times are those of hand-overs
	Rounds      []Round             // those that have figures
	Latency     histogram.Histogram // of all rounds
	Errors      int                 // calls that failed, in all rounds
	Err         error               // of the first of them, or why the workload did not run; nil: none
}

// Round is one round of a workload.
type Round struct {
	Ops       int           // locks taken and released; for the floor, exchanges
	Took      time.Duration // how long it was measured
	PerSecond float64

	// Of Lock and Release together. If the row is contended: of hand-overs, from the call of Release
	// until Lock returns to the next holder.
	P50, P90, P99, Max time.Duration

	// The same as multiples of the median of the floor in the same round; 0: not known.
	TimesP50, TimesP90, TimesP99 float64

	Jain        float64       // 1: each goroutine got the lock equally often; 0: the row is not contended
	LongestWait time.Duration // of Lock, if the row is contended
}

// Median returns the median of each figure over the rounds; Max and LongestWait are those of all.
func (r *Row) Median() (m Round) {
	of := func(f func(*Round) float64) float64 { return median(r.each(f)) }
	duration := func(f func(*Round) time.Duration) time.Duration {
		return time.Duration(of(func(r *Round) float64 { return float64(f(r)) }))
	}
	m = Round{
		Ops:       int(of(func(r *Round) float64 { return float64(r.Ops) })),
		Took:      duration(func(r *Round) time.Duration { return r.Took }),
		PerSecond: of(func(r *Round) float64 { return r.PerSecond }),
		P50:       duration(func(r *Round) time.Duration { return r.P50 }),
		P90:       duration(func(r *Round) time.Duration { return r.P90 }),
		P99:       duration(func(r *Round) time.Duration { return r.P99 }),
		TimesP50:  of(func(r *Round) float64 { return r.TimesP50 }),
		TimesP90:  of(func(r *Round) float64 { return r.TimesP90 }),
		TimesP99:  of(func(r *Round) float64 { return r.TimesP99 }),
		Jain:      of(func(r *Round) float64 { return r.Jain }),
	}
	for _, round := range r.Rounds {
		m.Max, m.LongestWait = max(m.Max, round.Max), max(m.LongestWait, round.LongestWait)
	}
	return m
}

// Spread returns the largest distance of a round from the median, as a share of the median: of the
// operations a second, and of P50. Both are 0 if there is one round.
func (r *Row) Spread() (perSecond, p50 float64) {
	return spread(r.each(func(r *Round) float64 { return r.PerSecond })),
		spread(r.each(func(r *Round) float64 { return float64(r.P50) }))
}

func (r *Row) each(f func(*Round) float64) (values []float64) {
	for i := range r.Rounds {
		values = append(values, f(&r.Rounds[i]))
	}
	return values
}

// median returns 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func spread(values []float64) (most float64) {
	m := median(values)
	if m == 0 {
		return 0
	}
	for _, v := range values {
		most = max(most, math.Abs(v-m)/m)
	}
	return most
}

// jain returns Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}

package cli

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
)

// verifyJSON is the result of verify in JSON.
type verifyJSON struct {
	Schema    string              `json:"schema"`
	Outcome   string              `json:"outcome"` // clean, violation, inconclusive
	Store     string              `json:"store"`
	Worker    string              `json:"worker,omitempty"` // what --worker has said about its lock
	Beside    *verifySidesJSON    `json:"beside,omitempty"`
	TTLMS     int64               `json:"ttl_ms"`
	TookMS    int64               `json:"took_ms"`
	Seed      uint64              `json:"seed"`
	Grants    int                 `json:"grants"`
	PerSecond float64             `json:"per_second"`
	Failed    int64               `json:"failed_calls"`
	HandOver  verifySpreadJSON    `json:"hand_over"`
	Recovery  verifySpreadJSON    `json:"recovery"`
	WaitMS    float64             `json:"longest_wait_ms"`
	LockOuts  int                 `json:"lock_outs"`
	LockOutMS float64             `json:"longest_lock_out_ms"`
	Faults    map[string]int      `json:"faults"`
	Lost      int                 `json:"dropped_replies"`
	Excepted  []string            `json:"excepted"`
	Why       string              `json:"excepted_because,omitempty"`
	Classes   []verifyVerdictJSON `json:"classes"`
	Notes     []string            `json:"notes"`
	Histories string              `json:"histories,omitempty"`
	Shortest  string              `json:"shortest,omitempty"`
}

// verifySidesJSON is what the two kinds of processes of --beside did.
type verifySidesJSON struct {
	Grants  verifySidedJSON `json:"grants"`
	Changes verifySidedJSON `json:"changes"` // grants of a lock that the other kind had before
	Faults  verifySidedJSON `json:"faults"`  // of processes
}

type verifySidedJSON struct {
	Holdfast int `json:"holdfast"`
	Worker   int `json:"worker"`
}

func toSidedJSON(s verify.Sided) verifySidedJSON { return verifySidedJSON{s.Own, s.Worker} }

func toSidesJSON(s *verify.Sides) *verifySidesJSON {
	if s == nil {
		return nil
	}
	return &verifySidesJSON{toSidedJSON(s.Grants), toSidedJSON(s.Changes), toSidedJSON(s.Faults)}
}

type verifySpreadJSON struct {
	N     int     `json:"n"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

type verifyVerdictJSON struct {
	Class      string         `json:"class"`
	Promise    string         `json:"promise"`
	Outcome    string         `json:"outcome"`
	NotChecked string         `json:"not_checked,omitempty"` // why
	Excepted   bool           `json:"excepted,omitempty"`
	Count      int            `json:"count"`
	Violations []string       `json:"violations"`
	Doubts     []string       `json:"doubts"`
	Facts      map[string]int `json:"facts"`
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func toSpreadJSON(s verify.Spread) verifySpreadJSON {
	return verifySpreadJSON{s.N, millis(s.P50), millis(s.P99), millis(s.Max)}
}

func toVerifyJSON(r *verify.Result) verifyJSON {
	f := &r.Figures
	out := verifyJSON{
		Schema: schema, Outcome: string(r.Outcome), Store: r.Store, Worker: r.Worker, Beside: toSidesJSON(r.Sides),
		TTLMS:  r.TTL.Milliseconds(),
		TookMS: r.Took.Milliseconds(), Seed: r.Seed,
		Grants: f.Grants, PerSecond: f.Rate, Failed: r.Errors, HandOver: toSpreadJSON(f.HandOver),
		Recovery: toSpreadJSON(f.Recovery),
		WaitMS:   millis(f.LongestWait), LockOuts: f.LockOuts, LockOutMS: millis(f.LongestLockOut),
		Faults: map[string]int{}, Lost: r.Lost, Excepted: []string{}, Why: r.Why, Notes: append([]string{}, r.Notes...),
		Histories: r.Dir, Shortest: r.Short,
	}
	for _, c := range r.Faults {
		out.Faults[c.Kind] = c.N
	}
	for _, c := range r.Excepted {
		out.Excepted = append(out.Excepted, string(c))
	}
	for _, v := range r.Report.Verdicts {
		j := verifyVerdictJSON{
			Class: string(v.Class), Promise: v.Class.Title(), Outcome: string(v.Outcome), NotChecked: v.NotChecked,
			Excepted: v.Excepted, Count: v.Count, Violations: []string{},
			Doubts: append([]string{}, v.Doubts...), Facts: map[string]int{},
		}
		for _, x := range v.Violations {
			j.Violations = append(j.Violations, x.String())
		}
		for _, fact := range v.Facts {
			j.Facts[fact.What] = fact.N
		}
		if v.Class == history.V && len(r.Notes) > 0 && v.Outcome == history.Clean {
			j.Outcome = string(history.Inconclusive) // as the whole outcome; the notes say why
		}
		out.Classes = append(out.Classes, j)
	}
	return out
}

package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// Result is what a run found.
type Result struct {
	Outcome  history.Outcome // the Report's, or Inconclusive if it is clean and there are Notes
	Report   *history.Report
	Figures  Figures
	Store    string          // its place, without credentials
	TTL      time.Duration   // as the store grants it
	Took     time.Duration   // in all
	Seed     uint64          // repeats the schedule of faults; 0: Judge made the Result
	Faults   []Count         // injected, by kind
	Excepted []history.Class // not promised by the deployment
	Why      string          // why Run itself excepted classes; or ""
	Notes    []string        // why the run proves less than it should
	Errors   int64           // failed calls, without refusals of a busy lock
	Lost     int             // replies dropped after their requests had taken effect
	Dir      string          // of the histories; "" if they were not kept
	// A file with the fewest events that show the first violation; "": none.
	Short string
	// What an external worker has said about its lock; "": holdfast's own.
	Worker string
	Sides  *Sides // nil without Options.Beside

	url string // its password is in no text
}

// Count is the number of faults of a kind.
type Count struct {
	Kind string
	N    int
}

// A conclusive run needs at least these, in addition to what package history requires.
const (
	MinGrants = 50
	MinFaults = 1
	minRate   = 1 // grants a second without faults
)

// conclude reads the end state and judges.
func (r *run) conclude(ctx context.Context) (*Result, error) {
	ctx = context.WithoutCancel(ctx) // a run that was ended early is still judged
	r.resource.Close()
	r.relay.Close()
	files, err := filepath.Glob(r.path("p*"))
	if err != nil {
		return nil, err
	}
	events, err := history.ReadFiles(files...)
	if err != nil {
		return nil, err
	}
	if r.store != nil {
		r.endState(ctx, namesOf(events))
	}
	for _, f := range r.resource.Final() {
		r.rec.Record(history.Event{Kind: history.Final, Name: f.Name, Value: f.Value, Token: f.Token})
	}
	if r.store != nil {
		r.cleanUp(ctx)
	}
	if err := errors.Join(r.rec.Close(), r.recRes.Close()); err != nil {
		return nil, fmt.Errorf("writing histories: %w", err)
	}
	more, err := history.ReadFiles(r.path("coordinator"), r.path("resource"))
	if err != nil {
		return nil, err
	}
	events = append(events, more...)
	history.Sort(events)
	except, why := r.excepted()
	o := history.Options{Slack: r.slack(), Except: except, MinGrants: MinGrants, MinFaults: MinFaults, MinRate: minRate}
	res := &Result{
		Report: history.Check(events, o), Figures: figuresOf(events, r.ttl), Store: r.place, TTL: r.ttl, Seed: r.Seed,
		Excepted: except, Why: why, Notes: r.notes, Errors: r.past.Errors, Lost: r.relay.Lost(), Worker: r.introduction(),
		url: r.URL,
	}
	res.Faults = counted(r.faults)
	if r.Beside > 0 {
		res.Sides = r.sidesOf(events)
		res.Notes = append(res.Notes, res.Sides.few(len(r.kinds) > 0)...)
	}
	res.decide()
	err = r.keepOrRemove(res)
	res.Took = time.Since(r.begun)
	return res, err
}

// decide sets Outcome.
func (r *Result) decide() {
	if r.Outcome = r.Report.Outcome; r.Outcome == history.Clean && len(r.Notes) > 0 {
		r.Outcome = history.Inconclusive
	}
}

func counted(kinds map[string]int) (list []Count) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, Count{kind, kinds[kind]})
	}
	return list
}

// namesOf returns the names of the requested locks, sorted.
func namesOf(events []history.Event) []string {
	names := map[string]bool{}
	for i := range events {
		if e := &events[i]; e.Kind == history.Acquire {
			names[e.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// slack returns Options.Slack, plus the time that the store keeps dead sessions beyond the TTL of
// their leases. ZooKeeper's clients trust three fifths of a session. It ends up to a tick late, and
// a tick is at most half a session.
func (r *run) slack() time.Duration {
	if r.store != nil && r.store.Name() == "zookeeper" {
		return r.Slack + r.ttl*2/3 + r.ttl*5/6
	}
	return r.Slack
}

// excepted returns the classes that this deployment does not promise, and why. A Redis that fails
// over loses grants that its replicas had not received, unless replicas confirm each grant. A
// quorum orders its queues after the fact.
func (r *run) excepted() (list []history.Class, why string) {
	list = slices.Clone(r.Except)
	if r.store == nil {
		return list, ""
	}
	except := func(because string, classes ...history.Class) {
		why = because
		for _, c := range classes {
			if !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	scheme, _, _ := strings.Cut(strings.ToLower(r.URL), ":")
	switch _, kind, _ := strings.Cut(scheme, "+"); kind {
	case "quorum":
		except(
			"the queue of a quorum is that of its first server; a request that reaches that server late has another place at the others for a while", history.L3)
	case "sentinel", "cluster":
		if len(r.Faults) > 0 && !r.confirmed() {
			except("a Redis whose replicas do not confirm grants (replicas=N in the URL) loses some when it fails over",
				history.S1, history.S4, history.S5)
		}
	}
	if r.store.Name() == "zookeeper" && r.parameter("protocol") == "single" {
		except("the waiters of protocol=single race for the lock", history.L3)
	}
	return list, why
}

// confirmed reports whether the URL requires replicas to confirm each grant.
func (r *run) confirmed() bool { n := r.parameter("replicas"); return n != "" && n != "0" }

// parameter returns a parameter of the store's URL, or "".
func (r *run) parameter(name string) string {
	_, query, _ := strings.Cut(r.URL, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return "" // the store has accepted the URL without this parameter
	}
	return q.Get(name)
}

// endState waits until all leases have expired, and records the store's answer for each name.
func (r *run) endState(ctx context.Context, names []string) {
	inspect := func(name string) (rec driver.Record, err error) {
		ctx, cancel := context.WithTimeout(ctx, openLimit)
		defer cancel()
		rec, err = r.store.Inspect(ctx, name)
		return rec, err
	}
	r.Say("waiting for the end of all leases")
	for end := time.Now().Add(3*r.ttl + r.slack() + 5*time.Second); time.Now().Before(end); {
		quiet := true
		for _, name := range names {
			if rec, err := inspect(name); err != nil || rec.Kind != driver.Unused {
				quiet = false
				break
			}
		}
		if quiet {
			break
		}
		// The store sends no message when a name becomes free.
		time.Sleep(min(r.ttl/10, time.Second))
	}
	for _, name := range names {
		rec, err := inspect(name)
		if err != nil {
			r.note("the end state of %s could not be read: %v", name, err)
			continue
		}
		n := 0
		for _, h := range rec.Holders {
			n += max(h.N, 1)
		}
		r.rec.Record(history.Event{Kind: history.State, Name: name, N: int32(n), Value: int64(rec.Waiting), Token: rec.Token,
			Limit: int32(rec.Limit)})
	}
}

// cleanUp removes the run's remaining names from the store.
func (r *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	list, err := r.store.List(ctx, r.prefix, "", 1000)
	for _, rec := range list {
		for _, h := range rec.Holders {
			err = errors.Join(err, r.store.Break(ctx, rec.Name, h.Token))
		}
	}
	if err != nil && !errors.Is(err, driver.ErrGone) {
		r.note("cleaning up: %v", err)
	}
}

// keepOrRemove keeps or removes the histories, and writes the shortest one that shows a violation.
func (r *run) keepOrRemove(res *Result) error {
	if all := res.Report.Violations(); len(all) > 0 {
		short := filepath.Join(r.dir, violationFile)
		rec, err := history.Create(short)
		if err != nil {
			return err
		}
		for _, e := range all[0].Events {
			rec.Record(e)
		}
		if err := rec.Close(); err != nil {
			return fmt.Errorf("writing histories: %w", err)
		}
		res.Short = short
	}
	if r.keep || res.Short != "" {
		res.Dir = r.dir
		return nil
	}
	return os.RemoveAll(r.dir)
}

// Counted returns the number of all faults.
func (r *Result) Counted() (n int) {
	for _, c := range r.Faults {
		n += c.N
	}
	return n
}

// Text returns the report for people.
func (r *Result) Text() string {
	var b strings.Builder
	// Its first line is the outcome, which comes last here.
	_, rest, _ := strings.Cut(r.Report.String(), "\n")
	b.WriteString(rest)
	b.WriteString("\n")
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", what, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", `\n`))
	}
	f := &r.Figures
	switch {
	case r.TTL == 0:
		line("history", "%s", cmp.Or(r.Store, "without a description, and without leases"))
	case r.Seed == 0:
		line("history", "%s, leases of at most %v", cmp.Or(r.Store, "without a description"), r.TTL)
	default:
		line("store", "%s, leases of %v", r.Store, r.TTL)
	}
	if r.Worker != "" {
		line("worker", "%s", r.Worker)
	}
	if s := r.Sides; s != nil {
		line("beside it", "holdfast: %d grants, the worker %d; the lock went %d times to holdfast and %d times to the worker",
			s.Grants.Own, s.Grants.Worker, s.Changes.Own, s.Changes.Worker)
	}
	line("grants", "%d, %.0f a second; %d calls failed", f.Grants, f.Rate, r.Errors)
	line("hand-over", "%s, from a release to the next waiter's grant", f.HandOver)
	line("recovery", "%s, from a holder's death to the next grant", f.Recovery)
	line("waits", "at most %v", rounded(f.LongestWait))
	switch {
	case r.TTL == 0:
	case f.LockOuts == 0:
		line("lock-outs", "none: calls never waited without any grant for longer than %v", r.TTL)
	default:
		times := "once"
		if f.LockOuts > 1 {
			times = fmt.Sprintf("%d times", f.LockOuts)
		}
		line("lock-outs", "%s calls waited without any grant for longer than %v, at most %v", times, r.TTL,
			rounded(f.LongestLockOut))
	}
	var kinds []string
	for _, c := range r.Faults {
		kinds = append(kinds, fmt.Sprintf("%d %s", c.N, c.Kind))
	}
	line("faults", "%d: %s", r.Counted(), cmp.Or(strings.Join(kinds, ", "), "none"))
	if r.Lost > 0 {
		line("replies", "%d dropped after their requests had taken effect", r.Lost)
	}
	if len(r.Excepted) > 0 {
		var list []string
		for _, c := range r.Excepted {
			list = append(list, string(c))
		}
		line("excepted", "%s: %s", strings.Join(list, ", "), cmp.Or(r.Why, "as asked for"))
	}
	for _, n := range r.Notes {
		line("note", "%s", n)
	}
	if r.Dir != "" {
		line("histories", "%s", r.Dir)
	}
	if r.Short != "" {
		line("shortest", "%s", r.Short)
	}
	if r.Seed != 0 {
		line("seed", "%d; --seed %d injects the same faults again, at other moments", r.Seed, r.Seed)
	}
	line("verdict", "%s", r.Outcome)
	return open.Scrub(b.String(), r.url)
}

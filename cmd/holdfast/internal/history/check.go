package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Class is the kind of a broken promise: which one, and of which part.
type Class string

// The classes.
const (
	S1 Class = "S1" // the store granted the lock inside a lease that it guaranteed
	S2 Class = "S2" // the client claimed the lock when the store could have granted it to another
	S3 Class = "S3" // the fenced resource accepted a stale write, or lost one
	S4 Class = "S4" // fencing tokens repeat or decrease
	S5 Class = "S5" // readers at the same time as a writer, or more permits than the limit
	L1 Class = "L1" // after a holder's death the next grant was late or never came
	L2 Class = "L2" // a waiter was forgotten, or waited too long
	L3 Class = "L3" // the queue was not in order of arrival
	L4 Class = "L4" // something was left at the end
	V  Class = "V"  // the run was too easy to prove anything
)

// Classes lists all classes, in the order of a report.
var Classes = []Class{S1, S2, S3, S4, S5, L1, L2, L3, L4, V}

// Title returns what the class promises, in a few words.
func (c Class) Title() string {
	return map[Class]string{
		S1: "no second grant inside a lease",
		S2: "no claim beyond a lease",
		S3: "the fenced resource accepted no stale write and lost none",
		S4: "tokens are unique and grow",
		S5: "readers and writers exclude each other, permits within the limit",
		L1: "the lock becomes free after its holder's death",
		L2: "every waiter is granted the lock or gets an answer",
		L3: "grants in order of arrival",
		L4: "nothing remains at the end",
		V:  "the run was hard enough",
	}[c]
}

// Options adjust Check. The zero value is right for a run on one machine.
type Options struct {
	// Margin is by how much a lease's guarantee is shorter than the TTL, counted from the send time
	// of its proof. 0: a tenth of the TTL, at most 15 s, which is what holdfast's clients trust.
	// Negative: none.
	Margin time.Duration

	// Notice is how late a program may notice a lost lease (a Lost without From) before that counts
	// as a claim. 0: 25 ms. Negative: none. It does not apply to a Held.
	Notice time.Duration

	// Slack is how long a lock that no client can hold any more may stay free while others wait. It
	// excludes times that the store needs: the TTL after a death, a third of a TTL for a lost push.
	// 0: 1 s.
	Slack time.Duration

	// Patience bounds every wait. 0: no bound, as long as others get the lock.
	Patience time.Duration

	// Except are the classes that the store's topology does not promise. Their violations are
	// reported as not promised, and do not affect the outcome.
	Except []Class

	// Windows is the number of windows of at most 10,000 operations that Porcupine checks again,
	// spread evenly. 0: 16. Negative: all.
	Windows int

	// Timeout is for each of these windows. 0: 10 s. A window that takes longer makes the run
	// inconclusive.
	Timeout time.Duration

	// Requirements for a conclusive run: grants (0: 1), faults (0: none), grants a second without
	// faults (0: any), waiting calls during each fault (0: 1; negative: none). Every fault must
	// also have met a held lock.
	MinGrants, MinFaults int
	MinRate              float64
	MinWaiting           int
}

func (o Options) withDefaults() Options {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
		*d = max(*d, 0)
	}
	or(&o.Notice, 25*time.Millisecond)
	or(&o.Slack, time.Second)
	or(&o.Timeout, 10*time.Second)
	o.MinGrants = max(o.MinGrants, 1)
	if o.Windows == 0 {
		o.Windows = 16
	}
	if o.MinWaiting == 0 {
		o.MinWaiting = 1
	}
	return o
}

// margin returns Margin for a lease with this TTL.
func (o *Options) margin(ttl time.Duration) time.Duration {
	switch {
	case o.Margin < 0:
		return 0
	case o.Margin > 0:
		return o.Margin
	default:
		return min(ttl/10, 15*time.Second)
	}
}

// Outcome is the result of a report.
type Outcome string

// The outcomes.
const (
	Clean        Outcome = "clean"        // everything was checked, without a finding
	Violated     Outcome = "violation"    // a promise was broken
	Inconclusive Outcome = "inconclusive" // no violation found, but not everything could be checked
)

// Violation is one broken promise.
type Violation struct {
	Class  Class
	Name   string  // of the lock, if it is about one
	Text   string  // what happened, in a sentence
	Events []Event // the fewest events that show it, in order of time
}

// String returns the class, the name and the text.
func (v Violation) String() string {
	if v.Name == "" {
		return fmt.Sprintf("%s: %s", v.Class, v.Text)
	}
	return fmt.Sprintf("%s %q: %s", v.Class, v.Name, v.Text)
}

// maxListed is how many violations of a class a verdict lists.
const maxListed = 20

// Verdict is the result for one class.
type Verdict struct {
	Class      Class
	Outcome    Outcome
	Excepted   bool        // Options.Except has it
	Violations []Violation // the first 20
	Count      int         // the number of all
	Facts      []Fact      // counts, for people
	Doubts     []string    // why it is inconclusive
	NotChecked string      // why a clean history had nothing to check; "": it was checked
}

// The facts that texts depend on.
const (
	factGrants    = "grants"
	factDeaths    = "deaths"
	factFaults    = "faults"
	factTokenless = "grants without a token"
	factIdle      = "faults that met no load"
	factAccepted  = "accepted"
	factRefused   = "refused"
	factUnknown   = "unknown"
	factQueued    = "waited in the queue"
	factStates    = "names whose end state was read"
	factGauges    = "readings of gauges"
)

// Fact is a count.
type Fact struct {
	What string
	N    int
}

func (v *Verdict) fact(what string, n int) { v.Facts = append(v.Facts, Fact{what, n}) }

func (v *Verdict) doubt(format string, args ...any) {
	if len(v.Doubts) < maxListed {
		v.Doubts = append(v.Doubts, fmt.Sprintf(format, args...))
	}
}

// Check judges a history. Events must be in order of time, as [ReadAll] returns them; others are
// sorted first, in a copy. It needs about 150 bytes for each attempt in addition to the events.
func Check(events []Event, o Options) *Report {
	if !slices.IsSortedFunc(events, func(a, b Event) int { return cmp.Compare(a.T, b.T) }) {
		events = slices.Clone(events)
		Sort(events)
	}
	c := &checker{Options: o.withDefaults(), table: newTable(events), verdicts: map[Class]*Verdict{}}
	for _, class := range Classes {
		c.verdicts[class] = &Verdict{Class: class, Excepted: slices.Contains(o.Except, class)}
	}
	for _, check := range []func(){
		c.wellFormed, c.tokens, c.overlaps, c.orders, c.register, c.arrival, c.progress, c.endState, c.vacuity,
		c.linearizable,
	} {
		check()
	}
	c.show()
	return c.report()
}

// checker is one Check.
type checker struct {
	Options
	*table
	verdicts     map[Class]*Verdict
	shared       []taken              // see sharedFaults
	faultTimesOf map[int32]faultTimes // of each client; -1: of faults that all share
	shown        []shown
	together     map[int32]span // of readers that share a grant: when that was made
	violating    map[int32]bool // attempts that are part of a violation of exclusion
	suspects     map[int32]bool // names with a violation of exclusion or tokens
}

// violation adds one. involved are the attempts whose events show it; extra are further events.
func (c *checker) violation(class Class, name string, involved []int32, extra []Event, format string, args ...any) {
	v := c.verdicts[class]
	v.Count++
	if v.Count > maxListed {
		return
	}
	v.Violations = append(v.Violations, Violation{class, name, fmt.Sprintf(format, args...), extra})
	c.shown = append(c.shown, shown{class, len(v.Violations) - 1, involved})
}

// shown is a violation to which show adds the events of attempts, once all are known.
type shown struct {
	class    Class
	i        int
	attempts []int32
}

// show adds the events of their attempts to violations, without repeated ones.
func (c *checker) show() {
	if len(c.shown) == 0 {
		return
	}
	wanted := map[string][]*Violation{}
	for _, s := range c.shown {
		v := &c.verdicts[s.class].Violations[s.i]
		v.Events = slices.Clone(v.Events)
		for _, a := range s.attempts {
			id := c.id(a)
			if !slices.Contains(wanted[id], v) {
				wanted[id] = append(wanted[id], v)
			}
		}
	}
	type which struct {
		id   string
		kind Kind
	}
	latest := map[which]ref{} // of a kind that repeats; of Queued the first
	flush := func(w which, r ref) {
		for _, v := range wanted[w.id] {
			v.Events = append(v.Events, *c.at(r))
		}
	}
	for i := range c.events {
		e := &c.events[i]
		if wanted[e.ID] == nil || e.Kind == Fault || e.Kind == Healed || e.Kind >= Begin && e.Kind <= Write {
			continue
		}
		if _, again := latest[which{e.ID, e.Kind}]; e.Kind == Queued && again {
			continue // a later report of the place
		}
		if e.Kind == Renewed || e.Kind == Held || e.Kind == Queued {
			latest[which{e.ID, e.Kind}] = ref(i + 1)
			continue
		}
		flush(which{e.ID, e.Kind}, ref(i+1))
	}
	for w, r := range latest {
		flush(w, r)
	}
	for _, s := range c.shown {
		Sort(c.verdicts[s.class].Violations[s.i].Events)
	}
}

// markViolating marks attempts, so that one mistake is not reported under several classes.
func (c *checker) markViolating(attempts ...int32) {
	if c.violating == nil {
		c.violating = map[int32]bool{}
	}
	for _, a := range attempts {
		c.violating[a] = true
	}
}

func (c *checker) suspect(name int32) {
	if c.suspects == nil {
		c.suspects = map[int32]bool{}
	}
	c.suspects[name] = true
}

func (c *checker) wellFormed() {
	v := c.verdicts[V]
	v.fact("events", len(c.events))
	v.fact("attempts", len(c.attempts))
	v.fact("clients", len(c.clients))
	v.fact("names", len(c.names))
	for _, m := range c.malformed {
		v.doubt("the history is malformed: %s", m)
	}
	if c.orphans > 0 {
		v.doubt("%d events belong to no recorded attempt", c.orphans)
	}
}

package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Report is the result of Check.
type Report struct {
	Outcome  Outcome
	Verdicts []Verdict // one for each of Classes, in their order

	table *table
	opt   Options
}

func (c *checker) report() *Report {
	r := &Report{Outcome: Clean, table: c.table, opt: c.Options}
	for _, class := range Classes {
		v := c.verdicts[class]
		switch {
		case v.Count > 0 && !v.Excepted:
			v.Outcome, r.Outcome = Violated, Violated
		case len(v.Doubts) > 0:
			v.Outcome = Inconclusive
			if r.Outcome == Clean {
				r.Outcome = Inconclusive
			}
		default:
			v.Outcome = Clean
		}
		r.Verdicts = append(r.Verdicts, *v)
	}
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; v.Outcome == Clean && v.Count == 0 {
			v.NotChecked = c.notChecked(r, v.Class)
		}
	}
	return r
}

// notChecked returns why the history has nothing that could break the promises of a class, or "".
func (c *checker) notChecked(r *Report, class Class) string {
	for _, n := range []struct {
		class Class
		why   string
		is    bool
	}{
		{S3, "nothing used a fenced resource", r.Fact(factAccepted)+r.Fact(factRefused)+r.Fact(factUnknown) == 0},
		{S4, "no grant has a token", r.Fact(factGrants) == r.Fact(factTokenless)},
		{S5, "no readers and no permits", !slices.ContainsFunc(c.attempts, func(h attempt) bool {
			return h.mode != driver.Exclusive
		})},
		{L1, "no holder died", r.Fact(factDeaths) == 0},
		{L1, "no call waited", !slices.ContainsFunc(c.attempts, func(h attempt) bool { return h.wait })},
		{L3, "no call has reported a place in a queue", r.Fact(factQueued) == 0},
		{L4, "the end state was not read", r.Fact(factStates)+r.Fact(factGauges) == 0},
	} {
		if n.class == class && n.is {
			return n.why
		}
	}
	return ""
}

// Verdict returns the verdict of one class.
func (r *Report) Verdict(class Class) Verdict {
	for _, v := range r.Verdicts {
		if v.Class == class {
			return v
		}
	}
	return Verdict{}
}

// Fact returns the count with this name, of any class; 0: none.
func (r *Report) Fact(what string) int {
	for _, v := range r.Verdicts {
		for _, f := range v.Facts {
			if f.What == what {
				return f.N
			}
		}
	}
	return 0
}

// Violations returns all that are listed, without those of excepted classes.
func (r *Report) Violations() []Violation {
	var all []Violation
	for _, v := range r.Verdicts {
		if !v.Excepted {
			all = append(all, v.Violations...)
		}
	}
	return all
}

// String returns the report for people: the outcome, a line for each class, and for each broken
// class the first violation with its events.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Outcome)
	for _, v := range r.Verdicts {
		word := map[Outcome]string{Clean: "ok", Violated: "VIOLATED", Inconclusive: "inconclusive"}[v.Outcome]
		facts := make([]string, 0, len(v.Facts))
		for _, f := range v.Facts {
			facts = append(facts, r.text(f))
		}
		switch {
		case v.Excepted && v.Count > 0:
			word = "broken, but not promised here"
		case v.NotChecked != "":
			word, facts = "not checked: "+v.NotChecked, nil
		}
		fmt.Fprintf(&b, "%-2s  %s: %s", v.Class, v.Class.Title(), word)
		switch {
		case v.Count == 1:
			b.WriteString(", once")
		case v.Count > 1:
			fmt.Fprintf(&b, ", %d times", v.Count)
		}
		if len(facts) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(facts, ", "))
		}
		b.WriteString("\n")
		for _, d := range v.Doubts {
			fmt.Fprintf(&b, "      %s\n", oneLine(d))
		}
		if len(v.Violations) > 0 {
			r.show(&b, v.Violations[0])
		}
	}
	return b.String()
}

// text returns f for people. A count of exceptions that is zero means that all is as it should be.
func (r *Report) text(f Fact) string {
	switch {
	case f.N == 0 && f.What == factTokenless && r.Fact(factGrants) > 0:
		return "every grant has a token"
	case f.N == 0 && f.What == factIdle && r.Fact(factFaults) > 0:
		return "every fault met load"
	}
	return counted(f.N, f.What)
}

// counted returns n and what, whose first word is a plural.
func counted(n int, what string) string {
	first, rest, more := strings.Cut(what, " ")
	if n == 1 && first != "ms" {
		first = strings.TrimSuffix(first, "s")
	}
	if more {
		first += " " + rest
	}
	return fmt.Sprintf("%d %s", n, first)
}

// show writes one violation with its events, their times as milliseconds since the first one.
func (r *Report) show(b *strings.Builder, v Violation) {
	where := ""
	if v.Name != "" {
		where = fmt.Sprintf("%q: ", v.Name)
	}
	fmt.Fprintf(b, "      %s%s\n", where, oneLine(v.Text))
	for _, e := range v.Events {
		fmt.Fprintf(b, "      %12.3f ms  %s\n", ms(e.T-v.Events[0].T), oneLine(e.describe(v.Events[0].T)))
	}
}

// oneLine keeps names and texts of other programs from looking like lines of the report.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// describe returns e in a line, without its time; times in it count from origin.
func (e *Event) describe(origin int64) string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	part := func(ok bool, format string, args ...any) {
		if ok {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	part(e.Client != "", "client %s", e.Client)
	part(e.ID != "", "id %s", e.ID)
	part(e.Target != "", "target %s", e.Target)
	part(e.Token != 0, "token %d", e.Token)
	part(e.Mode != 0 && int(e.Mode) < len(modeNames), "%s", modeNames[min(int(e.Mode), len(modeNames)-1)])
	part(e.N != 0, "n %d", e.N)
	part(e.Limit != 0, "limit %d", e.Limit)
	part(e.TTL != 0, "ttl %v", e.TTL)
	part(e.From != 0, "from %.3f ms", ms(e.From-origin))
	switch e.Kind {
	case Read, Writing, Write, State, Final, Gauge:
		part(true, "value %d", e.Value)
	}
	part(e.Result != 0, "%s", e.Result)
	part(e.Text != "", "(%s)", e.Text)
	return b.String()
}

package history

import (
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/timeline"
	"github.com/holdfast-lock/holdfast/driver"
)

// lines adds a line for each event of the violation, for the grants near it, for each end of a bar, and
// for the faults.
func (p *picture) lines() {
	shown := map[string]*shownAttempt{}
	for i := range p.shown {
		shown[p.c.id(p.shown[i].a)] = &p.shown[i]
	}
	for i := range p.v.Events {
		e := &p.v.Events[i]
		text, tone := e.words()
		lane := ""
		if s := shown[e.ID]; s != nil {
			lane = s.lane
			if e.Kind == Granted { // the event does not say what was asked for
				text = p.gets(s)
			}
		} else if e.Client != "" && e.Kind != Died && e.Kind != Closed {
			text = e.Client + " " + text
		}
		p.rows = append(p.rows, pictureRow{e.T, lane, text, tone})
	}
	for i := range p.shown {
		p.ends(&p.shown[i])
	}
	if len(p.rows) == 0 {
		return
	}
	begin, end := p.rows[0].t, p.rows[0].t
	for _, r := range p.rows {
		begin, end = min(begin, r.t), max(end, r.t)
	}
	for i := range p.c.faults {
		f := &p.c.faults[i]
		e := p.c.at(f.event)
		if f.begin > end || f.end < begin || slices.ContainsFunc(p.v.Events, func(v Event) bool { return v.ID == e.ID }) {
			continue
		}
		text := fmt.Sprintf("a fault begins: %s of %s", e.Text, e.Target)
		if f.begin < begin {
			text = fmt.Sprintf("a fault has begun %s before: %s of %s", spoken(begin-f.begin), e.Text, e.Target)
		}
		p.rows = append(p.rows, pictureRow{max(f.begin, begin), "", text, timeline.Fault})
		if f.end <= end {
			text = fmt.Sprintf("the fault ends: %s of %s", e.Text, e.Target)
			p.rows = append(p.rows, pictureRow{f.end, "", text, timeline.Fault})
		}
	}
}

// ends adds the lines where the bar of an attempt begins and ends, unless the violation's events say so.
func (p *picture) ends(s *shownAttempt) {
	if s.from == never {
		return
	}
	h := &p.c.attempts[s.a]
	add := func(t int64, text string) {
		said := func(r pictureRow) bool { return r.t == t && r.lane == s.lane }
		if t != never && !slices.ContainsFunc(p.rows, said) {
			p.rows = append(p.rows, pictureRow{t, s.lane, text, ""})
		}
	}
	add(s.from, p.gets(s))
	m := h.more()
	switch s.until {
	case h.release:
		add(s.until, "releases it")
	case m.over:
		add(s.until, "ends without a release")
	case m.broken:
		add(s.until, "loses it: an operator ends the grant")
	case m.stopped:
		add(s.until, "is stopped: its process does not run")
	case m.lost:
		add(s.until, "learns that its lease has ended")
	case p.c.guaranteedUntil(h):
		add(s.until, "has no lease any more that it can rely on")
	case p.c.lastSeen[h.client]:
		add(s.until, "is not heard of again")
	default:
		add(s.until, "claims it no longer")
	}
}

// gets says what an attempt was granted.
func (p *picture) gets(s *shownAttempt) string {
	h := &p.c.attempts[s.a]
	return "gets " + what(h.mode, h.n, h.limit) + token(h.token)
}

// words returns an event in plain words.
func (e *Event) words() (text string, tone timeline.Tone) {
	why := ""
	if e.Text != "" {
		why = ": " + e.Text
	}
	switch e.Kind {
	case Acquire:
		wait := ", and does not wait"
		if e.Wait {
			wait = ", and waits if necessary"
		}
		return "asks for " + what(e.Mode, e.N, e.Limit) + wait, ""
	case Queued:
		return "is in the queue", ""
	case Granted:
		return "gets the lock" + token(e.Token), ""
	case Refused:
		return "is refused" + why, timeline.Refused
	case Cancelled:
		return "stops waiting", ""
	case Unanswered:
		return "gets no answer" + why, timeline.Fault
	case Settled:
		if e.Token == 0 {
			return "had not got the lock, as the store shows later", timeline.Note
		}
		return "had got the lock, as the store shows later" + token(e.Token), timeline.Note
	case Renewed:
		return "has its lease renewed", ""
	case Held:
		return "is told by the library that its lease is valid", ""
	case Lost:
		return "learns that its lease has ended", ""
	case Downgrade:
		return "wants to become a reader", ""
	case Downgraded:
		return "has asked to become a reader: " + answer(e.Result), ""
	case Release:
		return "releases it", ""
	case Released:
		if e.Result == Rejected {
			return "is told that its grant had ended before", ""
		}
		return "has released it: " + answer(e.Result), ""
	case Begin:
		return "begins at the guarded resource" + token(e.Token) + ": " + answer(e.Result), timeline.Works
	case Read:
		text = fmt.Sprintf("reads %d from the guarded resource%s: %s", e.Value, token(e.Token), answer(e.Result))
		return text, timeline.Works
	case Writing:
		return fmt.Sprintf("is about to write %d to the guarded resource%s", e.Value, token(e.Token)), timeline.Works
	case Write:
		text = fmt.Sprintf("writes %d to the guarded resource%s: %s", e.Value, token(e.Token), answer(e.Result))
		return text, timeline.Works
	case Fault:
		return fmt.Sprintf("a fault begins: %s of %s", e.Text, e.Target), timeline.Fault
	case Healed:
		return "a fault ends", timeline.Fault
	case Leader:
		return e.Target + " leads the store from here on", timeline.Fault
	case Died:
		return e.Client + " dies without a release", timeline.Fault
	case Closed:
		return e.Client + " is closed", timeline.Note
	case Broken:
		return "an operator is about to end the grant" + token(e.Token), timeline.Fault
	case State:
		return fmt.Sprintf("at the end the store has %d holders or permits in use, and %d waiters", e.N, e.Value), timeline.Note
	case Final:
		return fmt.Sprintf("at the end the guarded resource has the value %d%s", e.Value, token(e.Token)), timeline.Note
	case Gauge:
		return fmt.Sprintf("has %d %s", e.Value, e.Target), timeline.Note
	}
	return e.describe(0), ""
}

// what names that which is asked for.
func what(mode driver.Mode, n, limit int32) string {
	switch mode {
	case driver.Shared:
		return "the lock as a reader"
	case driver.Permits:
		return fmt.Sprintf("%s of %d", counted(int(max(n, 1)), "permits"), limit)
	}
	return "the lock"
}

func token(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", token %d", n)
}

func answer(r Result) string {
	if r == 0 {
		return "no answer is recorded"
	}
	return r.String()
}

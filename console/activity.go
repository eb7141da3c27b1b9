package console

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// log is what the readings of this console have shown, the last maxLog changes.
type log struct {
	list []change // a ring
	next int
}

const maxLog = 2000

// change is a grant that has begun or ended between two readings.
type change struct {
	At    time.Time // of the reading that shows it
	Name  string    // raw
	Begun bool
	Who   string // shown
	Token uint64
	Mode  string
	Held  time.Duration // how long, if it has ended
	Lead  bool          // of an election
}

func (l *log) add(c change) {
	if len(l.list) < maxLog {
		l.list = append(l.list, c)
		return
	}
	l.list[l.next] = c
	l.next = (l.next + 1) % maxLog
}

// latest returns the changes that keep wants, the last first.
func (l *log) latest(most int, keep func(*change) bool) (list []change) {
	for i := range l.list {
		c := &l.list[(l.next+len(l.list)-1-i)%len(l.list)]
		if keep(c) {
			if list = append(list, *c); len(list) == most {
				break
			}
		}
	}
	return list
}

// compare adds the difference between two readings. If a name is missing because the reading was
// cut, nothing is said about it.
func (l *log) compare(before, now *snapshot) {
	seen := func(s *snapshot, name string) bool {
		return !s.more || len(s.records) > 0 && name <= s.records[len(s.records)-1].Name
	}
	for i := range now.records {
		r := &now.records[i]
		if old := before.get(r.Name); r.Damaged == "" && seen(before, r.Name) && (old == nil || old.Damaged == "") {
			for j := range r.Holders {
				if h := &r.Holders[j]; !h.Kept && !has(old, h) {
					l.add(newChange(now.at, r, h, true))
				}
			}
		}
	}
	for i := range before.records {
		r := &before.records[i]
		if cur := now.get(r.Name); seen(now, r.Name) && (cur == nil || cur.Damaged == "") {
			for j := range r.Holders {
				if h := &r.Holders[j]; !h.Kept && !has(cur, h) {
					l.add(newChange(now.at, r, h, false))
				}
			}
		}
	}
}

// has reports whether r has the grant h.
func has(r *holdfast.Record, h *holdfast.Holder) bool {
	return r != nil && slices.ContainsFunc(r.Holders, func(o holdfast.Holder) bool {
		return !o.Kept && o.Token == h.Token && (h.Token != 0 || o.ID == h.ID)
	})
}

func newChange(at time.Time, r *holdfast.Record, h *holdfast.Holder, begun bool) change {
	c := change{At: at, Name: r.Name, Begun: begun, Who: who(h), Token: h.Token, Mode: mode(r.Kind, h), Lead: leads(h)}
	if !begun {
		c.Held = at.Sub(h.Since)
	}
	return c
}

// The labels by which an election is known.
const (
	labelCandidate = "candidate"
	labelAddress   = "address"
)

// leads reports whether h is the candidate of an election.
func leads(h *holdfast.Holder) bool {
	return h.Labels[labelCandidate] != "" || h.Labels[labelAddress] != ""
}

// tokenText returns a token; - for none.
func tokenText(token uint64) string {
	if token == 0 {
		return "-"
	}
	return strconv.FormatUint(token, 10)
}

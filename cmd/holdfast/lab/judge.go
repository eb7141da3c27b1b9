package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/history"
)

// Cost is the class of the rows about polling: nothing is promised and broken, but commands are wasted, or a waiter
// leaves although the lock is about to come free. It is the lab's own; the checker does not know it.
const Cost history.Class = "cost"

// Found is what the checker found in one class.
type Found struct {
	Class    history.Class
	Promise  string // of the class, in a few words
	Text     string // what happened, the first time
	Count    int
	Excepted bool // no lock on such servers can promise it
}

// Part is a schedule that was played: with the algorithm, or with holdfast.
type Part struct {
	Record *Record
	Found  []Found // what the checker says
	Rate   *Rate   // of the rows about polling
	Err    error   // why it could not be played to its end
}

// Outcome is what became of a row.
type Outcome struct {
	Row             Row
	Unsound, Sound  Part
	Broke, Survived bool
}

// OK reports whether the algorithm broke as documented, and holdfast did not.
func (o *Outcome) OK() bool { return o.Broke && o.Survived }

// has reports whether a class was found.
func (p *Part) has(c history.Class) bool {
	return slices.ContainsFunc(p.Found, func(f Found) bool { return f.Class == c })
}

// violated reports whether something was found that counts.
func (p *Part) violated() bool {
	return slices.ContainsFunc(p.Found, func(f Found) bool { return !f.Excepted })
}

// judge asks the checker. V is left out: a schedule of the lab is as hard as it is.
func judge(r *Record, except []history.Class, margin time.Duration) (all []Found) {
	report := history.Check(r.History(), history.Options{
		Margin: margin,
		// The clients of the lab share one process. If that is held up, the one that tells is late, not the library.
		Notice:     500 * time.Millisecond,
		Slack:      5 * time.Second, // as above
		Except:     except,
		MinWaiting: -1,
	})
	for _, v := range report.Verdicts {
		if v.Count > 0 && v.Class != history.V {
			all = append(all, Found{v.Class, v.Class.Title(), v.Violations[0].Text, v.Count, v.Excepted})
		}
	}
	return all
}

// judge fills in Broke and Survived.
func (o *Outcome) judge() {
	if o.Unsound.Err == nil {
		o.Unsound.Found = judge(o.Unsound.Record, nil, -1) // the algorithms count on all of their leases
		o.Broke = o.Unsound.has(o.Row.Class)
	}
	if o.Sound.Err == nil {
		o.Sound.Found = judge(o.Sound.Record, o.Row.except, 0)
		o.Survived = !o.Sound.violated()
	}
	if o.Row.Class == Cost && o.Unsound.Err == nil && o.Sound.Err == nil {
		o.Broke = o.Unsound.Rate.PerSecond() > o.Sound.Rate.PerSecond() || o.Unsound.Rate.Unserved > o.Sound.Rate.Unserved
		o.Unsound.Found = append(o.Unsound.Found, Found{Class: Cost, Promise: "waiting costs little, and ends with the lock", Text: o.Unsound.Rate.String() + "; with holdfast " + o.Sound.Rate.String(), Count: 1})
	}
}

// Rate is what waiting costs.
type Rate struct {
	Waiters  int
	Requests int           // that the server got from those who wait, in Window
	Window   time.Duration // while they waited
	Unserved int           // of the waiters that left without the lock
}

// PerSecond is how many requests a second the server got.
func (r *Rate) PerSecond() float64 {
	if r == nil || r.Window <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Window.Seconds()
}

// String is the rate in one line.
func (r *Rate) String() string {
	s := fmt.Sprintf("%d requests in %v from %d that wait (%.0f a second)", r.Requests, r.Window.Round(time.Millisecond), r.Waiters, r.PerSecond())
	if r.Unserved > 0 {
		s += fmt.Sprintf(", of whom %d left without the lock", r.Unserved)
	}
	return s
}

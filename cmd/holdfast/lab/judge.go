package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// Cost is the class of the polling rows. They break no promise, but waste commands, or a waiter
// leaves although the lock is about to be free. Only the lab has this class, not package history.
const Cost history.Class = "cost"

// Found is a finding of the checker in one class.
type Found struct {
	Class    history.Class
	Promise  string // of the class, in a few words
	Text     string // what happened, the first time
	Count    int
	Excepted bool // no lock on such servers can promise it
}

// Part is one run of a schedule: of the algorithm, or of holdfast.
type Part struct {
	Record *Record
	Found  []Found // the checker's findings
	Rate   *Rate   // of the polling rows
	Err    error   // why the schedule did not end
}

// Outcome is the result of a row.
type Outcome struct {
	Row             Row
	Unsound, Sound  Part
	Broke, Survived bool
}

// OK reports whether the algorithm broke as documented, and holdfast did not.
func (o *Outcome) OK() bool { return o.Broke && o.Survived }

// has reports whether there is a finding of a class.
func (p *Part) has(c history.Class) bool {
	return slices.ContainsFunc(p.Found, func(f Found) bool { return f.Class == c })
}

// violated reports whether a finding counts.
func (p *Part) violated() bool {
	return slices.ContainsFunc(p.Found, func(f Found) bool { return !f.Excepted })
}

// judge runs the checker. It omits class V: a schedule of the lab need not be hard.
func judge(r *Record, except []history.Class, margin time.Duration) (all []Found) {
	report := history.Check(r.History(), history.Options{
		Margin: margin,
		// The lab's clients share one process. If that is slow, the recorder is late, not the
		// library.
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

// judge sets Broke and Survived.
func (o *Outcome) judge() {
	if o.Unsound.Err == nil {
		// The algorithms rely on their whole leases.
		o.Unsound.Found = judge(o.Unsound.Record, nil, -1)
		o.Broke = o.Unsound.has(o.Row.Class)
	}
	if o.Sound.Err == nil {
		o.Sound.Found = judge(o.Sound.Record, o.Row.except, 0)
		o.Survived = !o.Sound.violated()
	}
	if o.Row.Class == Cost && o.Unsound.Err == nil && o.Sound.Err == nil {
		o.Broke = o.Unsound.Rate.exceeds(o.Sound.Rate)
		o.Unsound.Found = append(o.Unsound.Found, Found{Class: Cost,
			Promise: "waiting costs few requests, and ends with the lock",
			Text:    o.Unsound.Rate.String() + "; with holdfast " + o.Sound.Rate.String(), Count: 1})
	}
}

// Rate is the cost of waiting, or of the end of a wait.
type Rate struct {
	Waiters  int
	Requests int           // requests of the waiters to the server, in Window
	Window   time.Duration // the measured time
	Unserved int           // waiters that left without the lock
	HandOver bool          // Window is that of one release: Requests count, and not how many a second
}

// exceeds reports whether the cost is higher than another.
func (r *Rate) exceeds(other *Rate) bool {
	if r.HandOver {
		return r.Requests > other.Requests
	}
	return r.PerSecond() > other.PerSecond() || r.Unserved > other.Unserved
}

// PerSecond returns the number of requests a second.
func (r *Rate) PerSecond() float64 {
	if r == nil || r.Window <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Window.Seconds()
}

// String returns the rate in one line.
func (r *Rate) String() string {
	if r.HandOver {
		return fmt.Sprintf("%d requests for one hand-over, with %d waiters", r.Requests, r.Waiters)
	}
	s := fmt.Sprintf("%d requests in %v from %d waiters (%.0f a second)", r.Requests, r.Window.Round(time.Millisecond),
		r.Waiters, r.PerSecond())
	if r.Unserved > 0 {
		s += fmt.Sprintf("; %d of them left without the lock", r.Unserved)
	}
	return s
}

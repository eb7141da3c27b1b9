package lab

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/history"
)

// Kind says how an event is shown.
type Kind string

// The kinds of events.
const (
	Does    Kind = "does"    // a client sends a command, or calls the library
	Thinks  Kind = "thinks"  // what a client concludes
	Works   Kind = "works"   // a client reads or writes what the lock guards
	Refused Kind = "refused" // the resource or the store refuses a client
	Fault   Kind = "fault"   // something breaks: a client, the network, a server
	Time    Kind = "time"    // time passes
	Shows   Kind = "shows"   // what the lab reads at the server, or says
)

// Stage is the lane of what the lab does and shows itself.
const Stage = "lab"

// Event is one line of a timeline.
type Event struct {
	At     time.Duration // since the beginning, on the clock of the record
	Lane   string        // the client, or Stage
	Kind   Kind
	Text   string
	Answer string // what the server answered to a command; may be empty

	Holders []string // who believes to hold once it has happened

	formal []history.Event // the same for the checker; what a reader is told may be none of its business
}

// Record is what happened in one run of a schedule. The timeline, the verdict and the page are derived from it
// and from nothing else. Its methods are safe for concurrent use.
type Record struct {
	mu      sync.Mutex
	start   time.Time
	skipped time.Duration // that the lab has let pass
	last    int64
	events  []Event
	held    []string
	before  []history.Event // the first line
}

func newRecord() *Record { return &Record{start: time.Now()} }

// now is the time on the clock of the record: real time, and what was skipped. It grows at each call, so that events
// have an order.
func (r *Record) now() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tick()
}

func (r *Record) tick() int64 {
	r.last = max(r.last+1, int64(time.Since(r.start)+r.skipped))
	return r.last
}

// skip lets d pass.
func (r *Record) skip(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped += d
}

// add appends an event that happens now. What of it is formal and has no time gets the same.
func (r *Record) add(e Event, formal ...history.Event) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tick()
	e.At = time.Duration(t)
	for i := range formal {
		f := &formal[i]
		if f.T == 0 {
			f.T = t
		}
		switch f.Kind {
		case history.Granted:
			r.held = append(r.held, f.Client)
		case history.Release, history.Lost, history.Died:
			if i := slices.Index(r.held, f.Client); i >= 0 {
				r.held = slices.Delete(slices.Clone(r.held), i, i+1)
			}
		}
	}
	e.Holders, e.formal = slices.Clone(r.held), formal
	r.events = append(r.events, e)
	return t
}

// Events are the lines in order of their time.
func (r *Record) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// History is what the checker judges, in order of time.
func (r *Record) History() []history.Event {
	r.mu.Lock()
	all := slices.Clone(r.before)
	r.mu.Unlock()
	for _, e := range r.Events() {
		all = append(all, e.formal...)
	}
	slices.SortStableFunc(all, func(a, b history.Event) int { return int(a.T - b.T) })
	return all
}

// Lanes are the clients, in order of their names.
func (r *Record) Lanes() []string {
	var all []string
	for _, e := range r.Events() {
		if e.Lane != Stage && !slices.Contains(all, e.Lane) {
			all = append(all, e.Lane)
		}
	}
	slices.Sort(all)
	return all
}

// addFormal adds to the last line what only the checker gets.
func (r *Record) addFormal(f history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.T == 0 {
		f.T = r.tick()
	}
	if len(r.events) == 0 {
		r.before = append(r.before, f)
		return
	}
	last := &r.events[len(r.events)-1]
	last.formal = append(last.formal, f)
}

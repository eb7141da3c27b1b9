package lab

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// Kind determines how an event is shown.
type Kind string

// The kinds of events.
const (
	Does    Kind = "does"    // a client sends a command, or calls the library
	Thinks  Kind = "thinks"  // a client draws a conclusion
	Works   Kind = "works"   // a client reads or writes the guarded resource
	Refused Kind = "refused" // the resource or the store refuses a client
	Fault   Kind = "fault"   // a client, the network or a server fails
	Time    Kind = "time"    // time passes
	Shows   Kind = "shows"   // the lab shows a value of the server, or explains
)

// Stage is the lane of the lab itself.
const Stage = "lab"

// Event is one line of a timeline.
type Event struct {
	At     time.Duration // since the start, on the clock of the record
	Lane   string        // the client, or Stage
	Kind   Kind
	Text   string
	Answer string // of the server to a command; may be empty

	Holders []string // clients that believe they hold the lock, after the event

	formal []history.Event // the same for the checker, possibly with more than the timeline shows
}

// Record has the events of one run of a schedule. The timeline, the verdict and the page are
// derived from it alone. Its methods are safe for concurrent use.
type Record struct {
	url string // of the server; its passwords are masked in all texts

	mu      sync.Mutex
	start   time.Time
	skipped time.Duration // time that the lab has skipped
	last    int64
	events  []Event
	held    []string
	before  []history.Event // the first line
}

// newRecord returns a Record whose texts have no password of url.
func newRecord(url string) *Record { return &Record{url: url, start: time.Now()} }

// now returns the time on the clock of the record: real time plus skipped time. It grows at each
// call, so that events have an order.
func (r *Record) now() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tick()
}

func (r *Record) tick() int64 {
	r.last = max(r.last+1, int64(time.Since(r.start)+r.skipped))
	return r.last
}

// skip skips d.
func (r *Record) skip(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped += d
}

// add appends an event that happens now. Formal events without a time get the same time.
func (r *Record) add(e Event, formal ...history.Event) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tick()
	e.At = time.Duration(t)
	e.Text, e.Answer = open.Scrub(e.Text, r.url), open.Scrub(e.Answer, r.url)
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

// Events returns the lines in order of their time.
func (r *Record) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// History returns the checker's events, in order of time.
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

// readers returns the clients that only ever ask for a shared lock.
func (r *Record) readers() (all []string) {
	var writers []string
	for _, e := range r.History() {
		switch {
		case e.Kind != history.Acquire:
		case e.Mode == driver.Shared:
			all = append(all, e.Client)
		default:
			writers = append(writers, e.Client)
		}
	}
	return slices.DeleteFunc(all, func(c string) bool { return slices.Contains(writers, c) })
}

// Lanes returns the clients, sorted by name.
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

// addFormal adds an event for the checker only.
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

package history

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/timeline"
	"github.com/holdfast-lock/holdfast/driver"
)

//go:embed picture.html
var pictureText string

var pictureTemplate = timeline.Page(pictureText)

// The limits of a picture.
const (
	maxAround = 4 // attempts of the lock that are not part of the violation: those nearest to it
	maxLanes  = 8 // lanes; attempts of the violation have theirs in any case
	maxBefore = 6 // lines before the violation, so that it is in view
	maxAfter  = 24
)

// picture is what the template shows of a violation.
type picture struct {
	Class            Class
	Promise          string
	What, Lead, Name string
	Bar              string
	Timeline         timeline.Timeline
	Clients, Run     []pictureFact
	c                *checker
	v                Violation
	shown            []shownAttempt
	rows             []pictureRow
	conflict         int64 // since when too many hold the lock; never: they do not
}

type pictureFact struct{ Lane, Text string }

// shownAttempt is an attempt with a lane. It holds the lock in [from, until).
type shownAttempt struct {
	a           int32
	lane        string
	involved    bool // it is part of the violation
	from, until int64
}

// pictureRow is one line.
type pictureRow struct {
	t    int64
	lane string
	text string
	tone timeline.Tone
}

// Draw writes a page (HTML) of the violation v: what happened, and the events that show it among those
// near it, with a lane for each client. The page needs no network.
func (r *Report) Draw(w io.Writer, v Violation) error {
	p := &picture{Class: v.Class, Promise: v.Class.Title(), What: sentence(v.Text), v: v, conflict: never,
		c: &checker{Options: r.opt, table: r.table}, Bar: "a client claims the lock"}
	if v.Class == S1 || v.Class == S5 {
		p.Bar = "the store has guaranteed the lock to a client"
	}
	if v.Name != "" {
		p.Name = fmt.Sprintf("%q", v.Name)
	}
	p.attempts()
	p.overlap()
	p.lines()
	p.timeline()
	p.facts(r)
	return pictureTemplate().Execute(w, p)
}

// sentence returns text with a capital letter and a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// attempts chooses the attempts that are shown, and gives them lanes: one for each client, and a further
// one where its attempts overlap.
func (p *picture) attempts() {
	name := slices.Index(p.c.names, p.v.Name)
	if name < 0 || len(p.v.Events) == 0 {
		return
	}
	ids := map[string]bool{}
	for _, e := range p.v.Events {
		if e.ID != "" {
			ids[e.ID] = true
		}
	}
	moment := p.v.Events[len(p.v.Events)-1].T
	var involved, near []int32
	for _, a := range p.c.byName[name] {
		switch h := &p.c.attempts[a]; {
		case ids[p.c.id(a)]:
			involved = append(involved, a)
			if h.granted() {
				moment = min(moment, h.grantedAt)
			}
		case h.granted():
			near = append(near, a)
		}
	}
	far := func(a int32) int64 { return max(p.c.attempts[a].grantedAt-moment, moment-p.c.attempts[a].grantedAt) }
	slices.SortStableFunc(near, func(x, y int32) int { return cmp.Compare(far(x), far(y)) })
	near = near[:min(len(near), maxAround)]
	lanes := map[string]pictureLane{}
	for i, a := range append(involved, near...) {
		h := &p.c.attempts[a]
		s := shownAttempt{a: a, involved: i < len(involved), from: never, until: never}
		if h.granted() {
			if s.from, s.until = h.grantedAt, p.c.claimedUntil(h); p.v.Class == S1 || p.v.Class == S5 {
				s.until = p.c.guaranteedUntil(h)
			}
			s.until = max(s.until, s.from)
		}
		if s.lane = p.laneOf(lanes, &s); s.lane != "" {
			p.shown = append(p.shown, s)
		}
	}
	slices.Sort(p.Timeline.Lanes)
}

// pictureLane is a lane, and when its attempts begin and end.
type pictureLane struct {
	client int32
	taken  [][2]int64
}

// laneOf returns the lane of an attempt; "": there is no room.
func (p *picture) laneOf(lanes map[string]pictureLane, s *shownAttempt) string {
	h := &p.c.attempts[s.a]
	end := h.call
	for _, t := range []int64{h.out, h.release, h.released} {
		if t != never {
			end = max(end, t)
		}
	}
	if h.granted() {
		end = max(end, s.until)
	}
	for _, l := range p.Timeline.Lanes {
		at := lanes[l]
		meets := func(t [2]int64) bool { return t[0] <= end && h.call <= t[1] }
		if at.client == h.client && !slices.ContainsFunc(at.taken, meets) {
			lanes[l] = pictureLane{h.client, append(at.taken, [2]int64{h.call, end})}
			return l
		}
	}
	if n := len(p.Timeline.Lanes); n < 26 && (s.involved || n < maxLanes) {
		l := string(rune('A' + n))
		p.Timeline.Lanes = append(p.Timeline.Lanes, l)
		lanes[l] = pictureLane{h.client, [][2]int64{{h.call, end}}}
		return l
	}
	return ""
}

// holders returns the lanes that hold the lock at t, and whether these are too many.
func (p *picture) holders(t int64) (lanes []string, tooMany bool) {
	exclusive, shared, permits, limit := 0, 0, int64(0), int64(0)
	for _, s := range p.shown {
		if t < s.from || t >= s.until {
			continue
		}
		lanes = append(lanes, s.lane)
		switch h := &p.c.attempts[s.a]; p.c.modeAt(s.a, t) {
		case driver.Exclusive:
			exclusive++
		case driver.Permits:
			permits, limit = permits+int64(h.n), max(limit, int64(h.limit))
		default:
			shared++
		}
	}
	return lanes, exclusive > 1 || exclusive == 1 && shared > 0 ||
		permits > 0 && (exclusive > 0 || shared > 0 || permits > limit)
}

// overlap finds the first time in which too many hold the lock, and says so.
func (p *picture) overlap() {
	var times []int64
	for _, s := range p.shown {
		times = append(times, s.from, s.until, p.c.attempts[s.a].more().down)
	}
	slices.Sort(times)
	for _, t := range times {
		switch _, tooMany := p.holders(t); {
		case t == never:
			return
		case p.conflict == never && tooMany:
			p.conflict = t
		case p.conflict != never && !tooMany:
			p.Lead = p.together(p.conflict) + fmt.Sprintf(" for %s.", spoken(t-p.conflict))
			return
		}
	}
}

// together says who holds the lock at t.
func (p *picture) together(t int64) string {
	lanes, _ := p.holders(t)
	slices.Sort(lanes)
	who, both := strings.Join(lanes[:len(lanes)-1], ", ")+" and "+lanes[len(lanes)-1], "both "
	if len(lanes) > 2 {
		both = "all "
	}
	used, limit := int64(0), int64(0)
	for _, s := range p.shown {
		if h := &p.c.attempts[s.a]; t >= s.from && t < s.until && p.c.modeAt(s.a, t) == driver.Permits {
			used, limit = used+int64(h.n), max(limit, int64(h.limit))
		}
	}
	if used > limit {
		return fmt.Sprintf("%s %shad permits, %d in all with a limit of %d,", who, both, used, limit)
	}
	return fmt.Sprintf("%s %shad the lock", who, both)
}

// spoken returns a time for a sentence.
func spoken(ns int64) string { return time.Duration(ns).Round(time.Microsecond).String() }

// timeline makes the lines of the page, and cuts those that are far from the violation.
func (p *picture) timeline() {
	slices.SortStableFunc(p.rows, func(x, y pictureRow) int { return cmp.Compare(x.t, y.t) })
	at := slices.IndexFunc(p.rows, func(r pictureRow) bool { return r.t >= p.conflict })
	if at < 0 && len(p.v.Events) > 0 { // nothing overlaps
		moment := p.moment()
		at = slices.IndexFunc(p.rows, func(r pictureRow) bool { return r.t >= moment })
	}
	if at < 0 {
		return
	}
	// Several lines may have the time at which it begins: all of them come first.
	for p.conflict != never && at+1 < len(p.rows) && p.rows[at+1].t == p.rows[at].t {
		at++
	}
	from, to := max(0, at-maxBefore), min(len(p.rows), at+1+maxAfter)
	for i, r := range p.rows[from:to] {
		holders, tooMany := p.holders(r.t)
		s := timeline.Step{Time: fmt.Sprintf("%.3f ms", ms(r.t-p.rows[from].t)), Lane: r.lane, Text: r.text, Tone: r.tone,
			Holders: holders, Conflict: tooMany || from+i == at}
		if from+i == at {
			if s.Begins = p.What; tooMany {
				s.Begins = strings.TrimSuffix(p.together(r.t), ",")
			}
		}
		p.Timeline.Steps = append(p.Timeline.Steps, s)
	}
}

// tells are the kinds of events that show a violation if no bars overlap: the last of these; otherwise
// the last event.
var tells = map[Class][]Kind{
	S1: {Granted, State}, S2: {Held}, S3: {Begin, Read, Write, Final}, S4: {Granted}, S5: {Granted, State}, L2: {Refused},
	L3: {Granted},
}

// moment returns when the violation can be seen.
func (p *picture) moment() int64 {
	for _, e := range slices.Backward(p.v.Events) {
		if slices.Contains(tells[p.Class], e.Kind) {
			return e.T
		}
	}
	return p.v.Events[len(p.v.Events)-1].T
}

// facts says who the clients are, and which run it was.
func (p *picture) facts(r *Report) {
	for _, l := range p.Timeline.Lanes {
		text := ""
		for _, s := range p.shown {
			if s.lane != l {
				continue
			}
			h := &p.c.attempts[s.a]
			if text == "" {
				text = p.c.clients[h.client] + ":"
			}
			text += " " + p.c.id(s.a) + ","
		}
		p.Clients = append(p.Clients, pictureFact{l, strings.TrimSuffix(text, ",")})
	}
	for i := range p.c.events {
		if e := &p.c.events[i]; e.Kind == Run && e.Text != "" {
			p.Run = append(p.Run, pictureFact{"recorded", e.Text})
			break
		}
	}
	for _, v := range r.Verdicts {
		if v.Count > 0 {
			text := fmt.Sprintf("%d times: %s", v.Count, v.Class.Title())
			if v.Count == 1 {
				text = "once: " + v.Class.Title()
			}
			if v.Excepted {
				text += " (not promised here)"
			}
			p.Run = append(p.Run, pictureFact{string(v.Class), text})
		}
	}
}

package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The columns of a timeline: the time, who believes to hold the lock, a lane for each client.
const (
	timeColumn  = 11
	heldColumn  = 9
	minLane     = 22
	plainColumn = 120 // if the terminal's width is unknown
)

// Legend explains the result of Text.
const Legend = `Each client has a column. The second column lists the clients that believe they hold the lock; ! marks too many of them.
  * reads or writes the guarded resource    # is refused    × something fails    · the lab shows or does
The lab skips time: it shortens or ends the leases at the server instead of waiting. holdfast's runs are in real time.
`

// eventMark separates the events in a text, for Steps.
const eventMark = "\x00"

// Text returns the outcome for a terminal of so many columns; 0 stands for the usual width.
func (o *Outcome) Text(columns int) string { return strings.Join(o.Steps(columns), "") }

// Steps returns Text in parts: what comes before the first event, then each event with what follows
// it.
func (o *Outcome) Steps(columns int) []string { return strings.Split(o.text(columns), eventMark) }

func (o *Outcome) text(columns int) string {
	if columns <= 0 {
		columns = plainColumn
	}
	var b strings.Builder
	line := func(head, text string) {
		for i, part := range wrapped(text, max(columns-12, 40)) {
			if i > 0 {
				head = ""
			}
			fmt.Fprintf(&b, "  %-9s %s\n", head, part)
		}
	}
	fmt.Fprintf(&b, "%s: %s\n", o.Row.ID, o.Row.Title)
	line("acquire", o.Row.Acquire)
	line("release", o.Row.Release)
	line("used as", o.Row.Habit)
	line("breaks", o.Row.Why)
	o.Unsound.text(&b, columns)
	for _, v := range o.unsoundVerdict() {
		line("verdict", v)
	}
	fmt.Fprintf(&b, "\n%s, the same with holdfast\n", o.Row.ID)
	line("how", o.Row.How)
	o.Sound.text(&b, columns)
	for _, v := range o.soundVerdict() {
		line("verdict", v)
	}
	return b.String()
}

// Line returns the outcome in one line.
func (o *Outcome) Line() string {
	reason := func(p *Part) string {
		if p.Err != nil {
			return " (" + strings.Join(strings.Fields(p.Err.Error()), " ") + ")" // it may have the output of a server
		}
		var classes []string
		for _, f := range p.Found {
			if !f.Excepted {
				classes = append(classes, string(f.Class))
			}
		}
		if len(classes) == 0 {
			return ""
		}
		return " (" + strings.Join(classes, ", ") + ")"
	}
	broke, survived := "broke", "holdfast survived"
	switch {
	case o.Unsound.Err != nil:
		broke = "NOT COMPLETED"
	case !o.Broke:
		broke = "DID NOT BREAK as documented"
	}
	switch {
	case o.Sound.Err != nil:
		survived = "holdfast's run NOT COMPLETED"
	case !o.Survived:
		survived = "HOLDFAST DID NOT SURVIVE"
	}
	return fmt.Sprintf("%-26s %-5s %s%s; %s%s", o.Row.ID, o.Row.Class, broke, reason(&o.Unsound), survived,
		reason(&o.Sound))
}

func (o *Outcome) unsoundVerdict() (all []string) {
	if o.Unsound.Err != nil {
		return []string{"the schedule could not be completed: " + o.Unsound.Err.Error()}
	}
	for _, f := range o.Unsound.Found {
		all = append(all, f.String())
	}
	if o.Broke {
		return append(all, fmt.Sprintf("it broke as documented (%s).", o.Row.Class))
	}
	return append(all, fmt.Sprintf("it did not break as documented: %s was expected.", o.Row.Class))
}

func (o *Outcome) soundVerdict() (all []string) {
	if o.Sound.Err != nil {
		return []string{"the schedule could not be completed: " + o.Sound.Err.Error()}
	}
	for _, f := range o.Sound.Found {
		all = append(all, f.String())
	}
	if o.Survived {
		return append(all, "holdfast survived: it kept all promises that it makes here.")
	}
	return append(all, "holdfast did not survive.")
}

// String returns the finding in a line.
func (f Found) String() string {
	s := fmt.Sprintf("%s, %s: %s", f.Class, f.Promise, f.Text)
	if f.Count > 1 {
		s += fmt.Sprintf(" (%d times)", f.Count)
	}
	if f.Excepted {
		s += ". No lock on such a server can promise it"
	}
	return s
}

// text writes a timeline.
func (p *Part) text(b *strings.Builder, columns int) {
	lanes := p.Record.Lanes()
	width := minLane
	if len(lanes) > 0 {
		width = max((columns-timeColumn-heldColumn)/len(lanes)-2, minLane)
	}
	fmt.Fprintf(b, "\n%*s  %-*s", timeColumn, "time", heldColumn-2, "holds")
	for _, l := range lanes {
		fmt.Fprintf(b, "  %-*s", width, l)
	}
	b.WriteByte('\n')
	for _, s := range steps(p) {
		b.WriteString(eventMark)
		held := strings.Join(s.Holders, " ")
		if s.Conflict {
			held += " !"
		}
		prefix := fmt.Sprintf("%*s  %-*s", timeColumn, clock(s.At), heldColumn-2, held)
		blank := strings.Repeat(" ", timeColumn+heldColumn)
		lane := slices.Index(lanes, s.Lane)
		indent, room := "  ", columns-timeColumn-heldColumn-6
		if lane >= 0 {
			indent, room = strings.Repeat(" ", 2+lane*(width+2)), width
		}
		for i, part := range wrapped(s.mark()+s.Line(), room) {
			if i > 0 {
				prefix = blank
			}
			if lane < 0 {
				part = "· " + part
				if i > 0 {
					part = "  " + part[len("· "):]
				}
			}
			b.WriteString(strings.TrimRight(prefix+indent+part, " ") + "\n")
		}
		if s.Begins != "" {
			fmt.Fprintf(b, "%s  >>> %s\n", blank, s.Begins)
		}
	}
	b.WriteByte('\n')
}

// step is an event with marks for the reader.
type step struct {
	Event
	Conflict bool   // more clients believe that they hold the lock than may
	Begins   string // an announcement of such a moment, if it begins here
}

// steps returns the events of a part, and marks the moments at which more clients than may believe
// that they hold the lock.
func steps(p *Part) (all []step) {
	most := 0
	readers := p.Record.readers()
	for _, e := range p.Record.Events() {
		limit := 1
		for _, f := range e.formal {
			if f.Limit > 0 {
				most = int(f.Limit)
			}
		}
		limit = max(limit, most)
		s := step{Event: e, Conflict: len(e.Holders) > limit}
		if !slices.ContainsFunc(e.Holders, func(c string) bool { return !slices.Contains(readers, c) }) {
			s.Conflict = false // readers may have the lock together
		}
		if s.Conflict && (len(all) == 0 || len(e.Holders) > len(all[len(all)-1].Holders)) {
			s.Begins = fmt.Sprintf("%s all believe that they hold the lock", strings.Join(e.Holders, ", "))
			if len(e.Holders) == 2 {
				s.Begins = fmt.Sprintf("%s and %s both believe that they hold the lock", e.Holders[0], e.Holders[1])
			}
		}
		all = append(all, s)
	}
	return all
}

// Line returns the event, with the answer.
func (e *Event) Line() string {
	if e.Answer == "" {
		return e.Text
	}
	return e.Text + " → " + e.Answer
}

// mark shows in text what the page shows in colours.
func (s *step) mark() string {
	switch s.Kind {
	case Fault:
		return "× "
	case Refused:
		return "# "
	case Works:
		return "* "
	}
	return ""
}

// clock returns a time of a timeline: seconds, to the millisecond.
func clock(t time.Duration) string { return fmt.Sprintf("%.3f s", t.Seconds()) }

// wrapped breaks text into lines of at most so many characters. It breaks a longer word.
func wrapped(text string, columns int) (lines []string) {
	line, used := "", 0
	for _, word := range strings.Fields(text) {
		for utf8.RuneCountInString(word) > columns {
			if used > 0 {
				lines = append(lines, line)
				line, used = "", 0
			}
			cut := []rune(word)
			lines = append(lines, string(cut[:columns]))
			word = string(cut[columns:])
		}
		n := utf8.RuneCountInString(word)
		switch {
		case used == 0:
			line, used = word, n
		case used+1+n > columns:
			lines = append(lines, line)
			line, used = word, n
		default:
			line += " " + word
			used += 1 + n
		}
	}
	return append(lines, line)
}

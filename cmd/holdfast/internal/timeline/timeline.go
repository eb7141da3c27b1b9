// Package timeline is the part of a page (HTML) that shows what several clients did to one lock, from
// top to bottom in order of time. Each client has a lane, with a bar while it holds the lock. The pages
// of the lab and of verify consist of it, and share its style. They load nothing, and need no script.
package timeline

import (
	_ "embed"
	"html/template"
	"slices"
	"strings"
	"sync"
)

// Tone determines the colour of a step's text.
type Tone string

// The tones. The zero Tone is that of a client's ordinary step.
const (
	Note    Tone = "note"    // an explanation
	Works   Tone = "works"   // a client reads or writes the guarded resource
	Refused Tone = "refused" // a client is refused, as it should be
	Fault   Tone = "fault"   // a client, the network or a server fails
)

// Step is one line.
type Step struct {
	Time    string
	Lane    string // the client; of a step that belongs to no client: none of the lanes
	Text    string
	Tone    Tone
	Holders []string // the clients that hold the lock after the step

	// Conflict: these are too many. The line is red.
	Conflict bool

	// Begins announces, in a line of its own below the step, what is wrong from here on.
	Begins string
}

// Timeline is what happened to a lock.
type Timeline struct {
	Lanes []string // the clients; short names, since a lane is narrow
	Steps []Step
}

// Style is the style of a page, and of the timelines in it: light, dark and for print.
//
//go:embed style.css
var Style template.CSS

//go:embed timeline.html
var text string

// Page returns a function that returns a template with this text, which it parses when it is first called:
// most runs of the program need none. The text can say {{template "timeline" T}} for a Timeline T, and
// {{template "style"}}.
func Page(page string) func() *template.Template {
	return sync.OnceValue(func() *template.Template {
		t := template.New("page").Funcs(template.FuncMap{"style": func() template.CSS { return Style }})
		return template.Must(template.Must(t.Parse(text)).Parse(page))
	})
}

// Cells returns what the lanes show at a step: "holds", "two" for one of too many, or nothing; and
// whether the client of the lane acts.
func (t Timeline) Cells(s Step) (all []string) {
	for _, l := range t.Lanes {
		cell := ""
		if slices.Contains(s.Holders, l) {
			if cell = "holds"; s.Conflict {
				cell = "two"
			}
		}
		if l == s.Lane {
			cell = strings.TrimSpace(cell + " acts")
		}
		all = append(all, cell)
	}
	return all
}

// Own reports whether a step belongs to a client.
func (t Timeline) Own(s Step) bool { return slices.Contains(t.Lanes, s.Lane) }

// Below returns the line below a step, which announces what begins.
func (t Timeline) Below(s Step) Step {
	return Step{Text: s.Begins, Holders: s.Holders, Conflict: s.Conflict}
}

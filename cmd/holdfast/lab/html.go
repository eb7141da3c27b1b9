package lab

import (
	"cmp"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/timeline"
)

//go:embed page.html
var pageText string

var pageTemplate = timeline.Page(pageText)

// leads is the row at the top of the page: the algorithm that most tutorials show.
const leads = "setpx-del"

// pageClass is a class in the page's filter, which is its legend too.
type pageClass struct {
	Class history.Class
	Words string
	Rows  int
}

// classWords says what breaks in each class, the worst first.
var classWords = []pageClass{
	{Class: history.S1, Words: "a second client gets the lock inside the lease of the first"},
	{Class: history.S2, Words: "a client works on after its lease, while another has the lock"},
	{Class: history.S3, Words: "the guarded resource takes a stale write, or an update is lost"},
	{Class: history.S4, Words: "a fencing token repeats, or is smaller than an earlier one"},
	{Class: history.S5, Words: "more permits are in use than the limit, or readers meet a writer"},
	{Class: history.L1, Words: "a client dies, and nobody ever gets the lock again"},
	{Class: history.L2, Words: "a waiter sleeps on, or is refused, although the lock is free"},
	{Class: history.L3, Words: "a later client gets the lock before an earlier one"},
	{Class: history.L4, Words: "a lock remains that nobody holds or can release"},
	{Class: Cost, Words: "waiting costs many requests, or ends without the lock"},
}

// badness is the place of a row on the page: leads comes first, then the worst class.
func badness(r *Row) int {
	if r.ID == leads {
		return -1
	}
	return slices.IndexFunc(classWords, func(c pageClass) bool { return c.Class == r.Class })
}

// name returns the name of a store for readers.
func (s Store) name() string {
	name := map[Store]string{"": "Redis", Redis: "Redis", "zookeeper": "ZooKeeper", "mysql": "MySQL",
		"postgres": "PostgreSQL", "sqlite": "SQLite"}[s]
	return cmp.Or(name, string(s))
}

// pageRow is an outcome as the page shows it.
type pageRow struct {
	*Outcome
	Store            string
	ClassAt, StoreAt int // the numbers of its class and its store
	Parts            []pagePart
	Light, Dark      template.URL // its picture
}

type pagePart struct {
	Title    string
	Timeline timeline.Timeline
	Verdict  []pageVerdict
}

type pageVerdict struct{ Class, Text string }

// page is what the template shows.
type page struct {
	Rows    []pageRow
	OK      int
	Stores  []string
	Classes []pageClass
	Empty   []pageChoice
}

// pageChoice is a store and a class, by their numbers.
type pageChoice struct{ Store, Class int }

// WriteHTML writes all timelines as one page without external files or scripts, the worst first.
func WriteHTML(w io.Writer, all []*Outcome) error {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(x, y *Outcome) int { return cmp.Compare(badness(&x.Row), badness(&y.Row)) })
	var p page
	for _, o := range all {
		if store := o.Row.Store.name(); !slices.Contains(p.Stores, store) {
			p.Stores = append(p.Stores, store)
		}
	}
	for _, c := range classWords {
		for _, o := range all {
			if o.Row.Class == c.Class {
				c.Rows++
			}
		}
		if c.Rows > 0 {
			p.Classes = append(p.Classes, c)
		}
	}
	filled := map[pageChoice]bool{}
	for _, o := range sorted {
		row, err := p.row(o)
		if err != nil {
			return err
		}
		p.Rows = append(p.Rows, row)
		filled[pageChoice{row.StoreAt, row.ClassAt}] = true
		if o.OK() {
			p.OK++
		}
	}
	for s := range p.Stores {
		for c := range p.Classes {
			if choice := (pageChoice{s, c}); !filled[choice] {
				p.Empty = append(p.Empty, choice)
			}
		}
	}
	return pageTemplate().Execute(w, &p)
}

func (p *page) row(o *Outcome) (row pageRow, err error) {
	store := o.Row.Store.name()
	row = pageRow{
		Outcome: o, Store: store, StoreAt: slices.Index(p.Stores, store),
		ClassAt: slices.IndexFunc(p.Classes, func(c pageClass) bool { return c.Class == o.Row.Class }),
		Parts: []pagePart{
			part("The algorithm", &o.Unsound, o.unsoundVerdict(), o.Broke),
			part("holdfast, in the same order of events", &o.Sound, o.soundVerdict(), o.Survived),
		},
	}
	if row.Light, err = saved(o, svgLight); err != nil {
		return row, err
	}
	row.Dark, err = saved(o, svgLight+svgDark)
	return row, err
}

// saved returns the picture of an outcome as a link. Programs for slides know no colour scheme, so
// each link has one.
func saved(o *Outcome, style string) (template.URL, error) {
	var b strings.Builder
	b.WriteString("data:image/svg+xml;base64,")
	e := base64.NewEncoder(base64.StdEncoding, &b)
	if err := writeSVG(e, o, style); err != nil {
		return "", err
	}
	err := e.Close()
	return template.URL(b.String()), err // base64 has no special characters
}

func part(title string, p *Part, verdict []string, good bool) pagePart {
	out := pagePart{Title: title, Timeline: timeline.Timeline{Lanes: p.Record.Lanes()}}
	for i, v := range verdict {
		class := "soft"
		if i == len(verdict)-1 {
			if class = "good"; !good || p.violated() {
				class = "bad"
			}
		}
		out.Verdict = append(out.Verdict, pageVerdict{class, v})
	}
	for _, s := range steps(p) {
		out.Timeline.Steps = append(out.Timeline.Steps, timeline.Step{
			Time: clock(s.At), Lane: s.Lane, Text: s.Line(), Tone: s.tone(), Holders: s.Holders, Conflict: s.Conflict,
			Begins: s.Begins,
		})
	}
	return out
}

// tone is what mark shows in text.
func (s *step) tone() timeline.Tone {
	switch s.Kind {
	case Fault:
		return timeline.Fault
	case Refused:
		return timeline.Refused
	case Works:
		return timeline.Works
	}
	if s.Lane == Stage {
		return timeline.Note
	}
	return ""
}

package lab

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// pageRow is an outcome as the page shows it.
type pageRow struct {
	*Outcome
	Parts []pagePart
}

type pagePart struct {
	Title   string
	Lanes   []string
	Steps   []pageStep
	Verdict []pageVerdict
}

type pageVerdict struct{ Class, Text string }

type pageStep struct {
	Time, Holds, Kind string
	Conflict          bool
	Begins            string
	Stage             bool     // the line belongs to no client
	Cells             []string // one for each lane
	Text              string
	Columns           int // the number of lanes
}

// WriteHTML writes all timelines as one page without external files.
func WriteHTML(w io.Writer, all []*Outcome) error {
	data := struct {
		Rows []pageRow
		OK   int
	}{}
	for _, o := range all {
		if o.OK() {
			data.OK++
		}
		data.Rows = append(data.Rows, pageRow{o, []pagePart{
			part("the algorithm", &o.Unsound, o.unsoundVerdict(), o.Broke),
			part("holdfast in the same order of events", &o.Sound, o.soundVerdict(), o.Survived),
		}})
	}
	return pageTemplate.Execute(w, data)
}

func part(title string, p *Part, verdict []string, good bool) pagePart {
	out := pagePart{Title: title, Lanes: p.Record.Lanes()}
	for i, v := range verdict {
		class := "found"
		if i == len(verdict)-1 {
			if class = "bad"; good {
				class = "good"
			}
		}
		out.Verdict = append(out.Verdict, pageVerdict{class, v})
	}
	for _, s := range steps(p) {
		row := pageStep{
			Time: clock(s.At), Holds: strings.Join(s.Holders, " "), Kind: string(s.Kind), Conflict: s.Conflict, Begins: s.Begins,
			Stage: s.Lane == Stage, Text: s.mark() + s.Line(), Columns: max(len(out.Lanes), 1),
		}
		for _, l := range out.Lanes {
			cell := ""
			if l == s.Lane {
				cell = row.Text
			}
			row.Cells = append(row.Cells, cell)
		}
		out.Steps = append(out.Steps, row)
	}
	return out
}

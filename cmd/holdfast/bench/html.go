package bench

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/timeline"
)

//go:embed page.html
var pageText string

var pageTemplate = timeline.Page(pageText)

// The measures of a picture, in pixels of its own.
const (
	pictureWidth  = 900
	pictureHeight = 190
	pictureTop    = 52 // above the bars: the lines of the marks
	pictureBottom = 160
	pictureMargin = 20
	markLine      = 15 // from one text of a mark to the next
	charWidth     = 8  // of the font, at most
	barsPerDecade = 20
)

// page is what the template shows.
type page struct {
	*Result
	Heads   []string
	Table   [][]string
	Lines   []string
	Made    string
	Figures []figure
}

// figure is the distribution of one workload, as a picture.
type figure struct {
	Name, Title, About string
	Bars               []rect
	Ticks              []mark
	Marks              []mark // the floor and the quantiles
	Facts              [][2]string
}

type rect struct {
	X, Y, Width, Height float64
	Text                string
}

// mark is a vertical line with a text.
type mark struct {
	X, Y  float64 // Y: of the text
	Text  string
	Class string
	Left  bool // the text is left of the line: there is no room right of it
}

// WriteHTML writes the figures as one page without external files or scripts: the table, and the
// distribution of each workload as a picture (SVG). All pictures have the same axis.
func (r *Result) WriteHTML(w io.Writer) error {
	p := page{Result: r, Heads: heads, Lines: r.lines(), Made: r.rounds()}
	for _, row := range r.Rows {
		p.Table = append(p.Table, row.cells())
	}
	axis := r.axis()
	for _, row := range r.Rows {
		if len(row.Rounds) > 0 {
			p.Figures = append(p.Figures, axis.figure(row, r.Rows[0]))
		}
	}
	return pageTemplate().Execute(w, &p)
}

// axis is a logarithmic scale from one power of ten to another.
type axis struct{ from, to float64 } // exponents

// axis returns the scale on which all distributions fit.
func (r *Result) axis() axis {
	a := axis{math.Inf(1), math.Inf(-1)}
	for _, row := range r.Rows {
		for _, b := range row.Latency.Bars(barsPerDecade) {
			a.from, a.to = min(a.from, math.Log10(float64(max(b.From, 1)))), max(a.to, math.Log10(float64(max(b.To, 1))))
		}
	}
	a.from, a.to = math.Floor(a.from*2)/2, math.Ceil(a.to*2)/2
	if a.to <= a.from {
		a.to = a.from + 1
	}
	return a
}

func (a axis) x(d time.Duration) float64 {
	share := (math.Log10(float64(max(d, 1))) - a.from) / (a.to - a.from)
	return pictureMargin + min(max(share, 0), 1)*(pictureWidth-2*pictureMargin)
}

// figure draws a row. floor is the row of the cheapest exchange.
func (a axis) figure(row, floor *Row) (f figure) {
	m := row.Median()
	f = figure{Name: row.Name, Title: row.Title}
	f.About = fmt.Sprintf("Distribution of %s: median %s, 99 %% within %s, longest %s", row.Name, span(m.P50), span(m.P99),
		span(m.Max))
	bars, most := row.Latency.Bars(barsPerDecade), uint64(1)
	for _, b := range bars {
		most = max(most, b.N)
	}
	for _, b := range bars {
		if b.N == 0 {
			continue
		}
		height := max(float64(b.N)/float64(most)*(pictureBottom-pictureTop), 1)
		x := a.x(b.From)
		f.Bars = append(f.Bars, rect{x, pictureBottom - height, max(a.x(b.To)-x-1, 1), height,
			fmt.Sprintf("%s to %s: %s", span(b.From), span(b.To), percent(float64(b.N)/float64(row.Latency.N)))})
	}
	for e := int(math.Ceil(a.from)); e <= int(math.Floor(a.to)); e++ {
		d := time.Duration(math.Round(math.Pow10(e)))
		text := strings.NewReplacer(".00", "", ".0", "").Replace(span(d))
		f.Ticks = append(f.Ticks, mark{X: a.x(d), Text: text})
	}
	f.Marks = []mark{
		{X: a.x(m.P50), Text: "p50 " + span(m.P50)}, {X: a.x(m.P90), Text: "p90 " + span(m.P90)},
		{X: a.x(m.P99), Text: "p99 " + span(m.P99)},
	}
	if row != floor && len(floor.Rounds) > 0 {
		f.Marks = append(f.Marks, mark{X: a.x(floor.Median().P50), Text: "", Class: "floor"})
	}
	for i := range f.Marks {
		k := &f.Marks[i]
		k.Y = markLine * float64(i+1)
		k.Left = k.X+float64(charWidth*len([]rune(k.Text))) > pictureWidth-pictureMargin
	}
	fact := func(what, format string, args ...any) {
		f.Facts = append(f.Facts, [2]string{what, fmt.Sprintf(format, args...)})
	}
	fact("samples", "%s", whole(float64(row.Latency.N)))
	if m.TimesP50 > 0 && row != floor {
		fact("× exchange", "p50 %.*f, p90 %.*f, p99 %.*f", decimals(m.TimesP50), m.TimesP50, decimals(m.TimesP90), m.TimesP90,
			decimals(m.TimesP99), m.TimesP99)
	}
	if row.Contended {
		fact("longest wait", "%s", span(m.LongestWait))
	}
	if len(row.Rounds) > 1 {
		var each []string
		for _, round := range row.Rounds {
			each = append(each, fmt.Sprintf("%s at %s", whole(round.PerSecond)+"/s", span(round.P50)))
		}
		fact("rounds", "%s", strings.Join(each, " · "))
	}
	return f
}

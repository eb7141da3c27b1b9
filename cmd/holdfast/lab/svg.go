package lab

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// The measures of a picture, in pixels. The font has a fixed width, so the length of each text is
// known, whatever font the reader has.
const (
	svgFont   = 12  // the height of the font
	svgChar   = 7.3 // the advance of a character; common fonts have 7.25 at most
	svgLine   = 16  // from line to line
	svgGap    = 6   // between two events
	svgLane   = 28  // from lane to lane
	svgBar    = 16  // the width of a bar
	svgText   = 44  // characters in a line
	svgMargin = 16
	svgGutter = 24 // between the two parts
)

// The texts and bars have a background of their own: a page may be dark where the reader's system
// is light.
const svgLight = `
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1b1f24; }
.paper { fill: #ffffff; stroke: #d0d7de; }
.head { font-weight: bold; }
.rail { stroke: #d0d7de; }
.holds { fill: #4a90d9; }
.two { fill: #d1242f; }
.band { fill: #d1242f; fill-opacity: 0.12; }
.dot { fill: #ffffff; stroke: #1b1f24; }
.soft { fill: #57606a; }
.bad { fill: #b3261e; font-weight: bold; }
.good { fill: #1a7f37; font-weight: bold; }
`

const svgDark = `
text { fill: #e4e8ec; }
.paper { fill: #14181d; stroke: #343c46; }
.rail { stroke: #343c46; }
.holds { fill: #3f86d2; }
.two { fill: #f0524d; }
.band { fill: #f0524d; fill-opacity: 0.2; }
.dot { fill: #14181d; stroke: #e4e8ec; }
.soft { fill: #9aa5b1; }
.bad { fill: #ff8a80; }
.good { fill: #6fd18a; }
`

// WriteSVG writes a picture of an outcome: the algorithm, and holdfast in the same order of events
// beside it. Each client has a lane, with a bar while it believes that it holds the lock. The bars
// of too many clients are red. The picture follows the reader's colour scheme, light or dark.
func WriteSVG(w io.Writer, o *Outcome) error {
	return writeSVG(w, o, svgLight+"@media (prefers-color-scheme: dark) {"+svgDark+"}\n")
}

func writeSVG(w io.Writer, o *Outcome, style string) error {
	left := newPicture(&o.Unsound, svgMargin)
	right := newPicture(&o.Sound, svgMargin+left.width+svgGutter)
	top := picture{x: svgMargin, y: svgMargin}
	top.text("", top.x, wrapped(o.Row.Why, int(float64(right.x+right.width-top.x)/svgChar))...)
	left.y, right.y = top.y+svgLine, top.y+svgLine
	left.draw(o.Row.Title, o.Row.Class, o.unsoundVerdict(), o.Broke)
	right.draw("holdfast, in the same order of events", o.Row.Class, o.soundVerdict(), o.Survived)

	frame := picture{x: svgMargin, y: max(left.y, right.y) + svgGap}
	width, height := right.x+right.width+svgMargin, frame.y+2*svgLine+svgMargin
	frame.add(`<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d">`,
		width, height)
	frame.add(`<title>%s</title>`, escaped(o.Row.Title+", and holdfast in the same order of events"))
	frame.add(`<style>%s</style>`, style)
	frame.add(`<rect class="paper" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`, width-1, height-1)
	frame.text("soft", svgMargin, "A bar: the client believes that it holds the lock. Red: too many clients at once.",
		"Recorded on a real "+o.Row.Store.name()+" by: holdfast lab run "+o.Row.ID+" --svg FILE")
	_, err := io.WriteString(w, frame.out.String()+top.out.String()+left.out.String()+right.out.String()+"</svg>\n")
	return err
}

// picture draws one part of a picture from top to bottom.
type picture struct {
	part     *Part
	lanes    []string
	x, width int
	y        int // the top of the next text
	out      strings.Builder
}

func newPicture(part *Part, x int) *picture {
	p := &picture{part: part, lanes: part.Record.Lanes(), x: x, y: svgMargin}
	p.width = p.textX() - x + int(math.Ceil(svgText*svgChar))
	return p
}

func (p *picture) add(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// laneX is the middle of a lane.
func (p *picture) laneX(lane int) int { return p.x + lane*svgLane + svgLane/2 }

// textX is the left edge of the texts, which are right of the lanes.
func (p *picture) textX() int { return p.x + max(len(p.lanes), 1)*svgLane + svgGap }

// text draws lines below each other.
func (p *picture) text(class string, x int, lines ...string) {
	fmt.Fprintf(&p.out, `<text class="%s">`, class)
	for _, line := range lines {
		fmt.Fprintf(&p.out, `<tspan x="%d" y="%d">%s</tspan>`, x, p.y+svgFont, escaped(line))
		p.y += svgLine
	}
	p.add("</text>")
}

// draw draws the part: the names of the lanes, the bars, the events, and of the verdict what was
// found in the class of the row.
func (p *picture) draw(title string, class history.Class, verdict []string, good bool) {
	columns := int(float64(p.width) / svgChar)
	p.text("head", p.x, wrapped(title, columns)...)
	p.y += svgGap
	names := p.y
	for i, l := range p.lanes {
		p.y = names
		p.text("head", p.laneX(i)-len(l)*svgFont*3/10, l)
	}
	p.y += svgGap

	// The bars come first in the file, below the texts.
	texts := &picture{part: p.part, lanes: p.lanes, x: p.x, y: p.y}
	spans := texts.events()
	for i := range p.lanes {
		p.add(`<line class="rail" x1="%d" y1="%d" x2="%[1]d" y2="%d"/>`, p.laneX(i), p.y, texts.y)
	}
	for _, s := range spans {
		p.bars(s)
	}
	p.add("%s", strings.TrimSuffix(texts.out.String(), "\n"))

	p.y = texts.y + svgGap
	for _, f := range p.part.Found {
		if f.Class == class {
			p.text("soft", p.x, wrapped(f.String(), columns)...)
		}
	}
	tone := "good"
	if !good || p.part.violated() {
		tone = "bad"
	}
	p.text(tone, p.x, wrapped(verdict[len(verdict)-1], columns)...)
}

// span is a time in which the same clients believe that they hold the lock.
type span struct {
	top, bottom int
	holders     []string
	conflict    bool // more of them than may
}

// events draws the texts of the events, and returns the spans.
func (p *picture) events() (all []span) {
	now := span{top: p.y}
	for _, s := range steps(p.part) {
		changed := !slices.Equal(s.Holders, now.holders)
		at := p.y - svgGap/2
		// The bars show the conclusion of a client that it has the lock, or has it no longer.
		if s.Kind != Thinks || !changed {
			p.event(&s)
			at = p.y - svgGap - svgLine/2
		}
		if changed || s.Conflict != now.conflict {
			now.bottom = at
			all = append(all, now)
			now = span{top: at, holders: s.Holders, conflict: s.Conflict}
		}
		if s.Begins != "" {
			p.text("bad", p.textX(), wrapped(s.Begins, svgText)...)
			p.y += svgGap
		}
	}
	now.bottom = p.y
	return append(all, now)
}

// event draws the text of an event, and a dot in the lane of its client.
func (p *picture) event(s *step) {
	class, text := "", s.Line()
	switch lane := slices.Index(p.lanes, s.Lane); {
	case lane < 0:
		class = "soft"
	default:
		text = s.Lane + ": " + text
		p.add(`<circle class="dot" cx="%d" cy="%d" r="3"/>`, p.laneX(lane), p.y+svgLine/2)
	}
	switch s.Kind {
	case Refused:
		class = "good"
	case Fault:
		class = "bad"
	}
	p.text(class, p.textX(), wrapped(text, svgText)...)
	p.y += svgGap
}

// bars draws the bars of a span, and a red background if there are too many.
func (p *picture) bars(s span) {
	if s.bottom <= s.top {
		return
	}
	class := "holds"
	if s.conflict {
		class = "two"
		p.add(`<rect class="band" x="%d" y="%d" width="%d" height="%d"/>`, p.x, s.top, p.width, s.bottom-s.top)
	}
	for i, l := range p.lanes {
		if slices.Contains(s.holders, l) {
			p.add(`<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`, class, p.laneX(i)-svgBar/2, s.top, svgBar,
				s.bottom-s.top)
		}
	}
}

// escaped returns text as XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder returns no errors
	return b.String()
}

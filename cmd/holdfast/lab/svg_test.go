package lab

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// drawn is what the tests read of a picture.
type drawn struct {
	ViewBox string `xml:"viewBox,attr"`
	Texts   []struct {
		Class string `xml:"class,attr"`
		Lines []struct {
			X    float64 `xml:"x,attr"`
			Y    float64 `xml:"y,attr"`
			Text string  `xml:",chardata"`
		} `xml:"tspan"`
	} `xml:"text"`
	Rects []struct {
		Class  string  `xml:"class,attr"`
		X      float64 `xml:"x,attr"`
		Y      float64 `xml:"y,attr"`
		Width  float64 `xml:"width,attr"`
		Height float64 `xml:"height,attr"`
	} `xml:"rect"`
}

func readPicture(t *testing.T, svg []byte) *drawn {
	t.Helper()
	d := &drawn{}
	if err := xml.Unmarshal(svg, d); err != nil {
		t.Fatalf("%v\n%s", err, svg)
	}
	return d
}

// CheckPicture draws an outcome and checks that no text lies over another text or a bar, or is cut
// off. The red bars must be those of the clients that the timeline shows in conflict.
func CheckPicture(t *testing.T, o *Outcome) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSVG(&b, o); err != nil {
		t.Fatal(err)
	}
	d := readPicture(t, b.Bytes())
	var width, height float64
	if _, err := fmt.Sscanf(d.ViewBox, "0 0 %g %g", &width, &height); err != nil {
		t.Fatal(err)
	}
	type box struct {
		left, top, right, bottom float64
		text                     string
	}
	var boxes []box
	for _, text := range d.Texts {
		for _, l := range text.Lines {
			boxes = append(boxes, box{l.X, l.Y - svgFont, l.X + float64(utf8.RuneCountInString(l.Text))*7.25, l.Y + 3, l.Text})
		}
	}
	if len(boxes) < 10 {
		t.Fatalf("%s: only %d texts", o.Row.ID, len(boxes))
	}
	texts := len(boxes)
	for _, r := range d.Rects {
		if r.Class == "holds" || r.Class == "two" {
			boxes = append(boxes, box{r.X, r.Y, r.X + r.Width, r.Y + r.Height, "a bar"})
		}
	}
	for i, x := range boxes {
		if x.left < 0 || x.top < 0 || x.right > width || x.bottom > height {
			t.Errorf("%s: %q is cut off: %+v", o.Row.ID, x.text, x)
		}
		for _, y := range boxes[:min(i, texts)] {
			if x.left < y.right && y.left < x.right && x.top < y.bottom && y.top < x.bottom {
				t.Errorf("%s: %q lies over %q", o.Row.ID, x.text, y.text)
			}
		}
	}

	var want []float64 // the left edges of the red bars
	x := svgMargin
	for _, part := range []*Part{&o.Unsound, &o.Sound} {
		p := newPicture(part, x)
		for _, s := range steps(part) {
			for i, l := range p.lanes {
				if left := float64(p.laneX(i) - svgBar/2); s.Conflict && slices.Contains(s.Holders, l) &&
					!slices.Contains(want, left) {
					want = append(want, left)
				}
			}
		}
		x += p.width + svgGutter
	}
	var got []float64
	for _, r := range d.Rects {
		if r.Class == "two" && !slices.Contains(got, r.X) {
			got = append(got, r.X)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: red bars at %v, want %v", o.Row.ID, got, want)
	}
	return b.Bytes()
}

// Structure returns a picture's texts and the order of its bars. Numbers that differ from run to
// run, such as tokens, are left out.
func Structure(t *testing.T, svg []byte) string {
	t.Helper()
	d := readPicture(t, svg)
	var b strings.Builder
	for _, text := range d.Texts {
		var words []string
		for _, l := range text.Lines {
			words = append(words, l.Text)
		}
		fmt.Fprintf(&b, "%s at %g: %s\n", text.Class, text.Lines[0].X, strings.Join(words, " "))
	}
	for _, r := range d.Rects {
		if r.Class != "paper" {
			fmt.Fprintf(&b, "%s at %g\n", r.Class, r.X)
		}
	}
	return regexp.MustCompile(`\d{13,}|\b\d+(\.\d+)?s\b|\b\d+ times`).ReplaceAllString(b.String(), "N")
}

func TestPicture(t *testing.T) {
	svg := CheckPicture(t, handMade())
	for _, raw := range []string{"<script", "</td><b>", "<i>title", "<why>"} {
		if bytes.Contains(svg, []byte(raw)) {
			t.Errorf("%s is not escaped", raw)
		}
	}
	for _, word := range []string{"prefers-color-scheme: dark", "A and B both believe that they hold the lock",
		`class="two"`, `class="band"`} {
		if !bytes.Contains(svg, []byte(word)) {
			t.Errorf("the picture lacks %q:\n%s", word, svg)
		}
	}
	for _, word := range []string{"href", "url(", "@import"} {
		if bytes.Contains(svg, []byte(word)) {
			t.Errorf("the picture contains %q", word)
		}
	}
}

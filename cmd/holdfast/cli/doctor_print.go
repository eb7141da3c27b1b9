package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// doctorJSON is a diagnosis in JSON.
type doctorJSON struct {
	Schema   string        `json:"schema"`
	Store    string        `json:"store,omitempty"`
	Place    string        `json:"place,omitempty"`
	TTLMS    int64         `json:"ttl_ms"`
	Sound    bool          `json:"sound"`
	Findings []findingJSON `json:"findings"`
	Error    string        `json:"error,omitempty"`
}

type findingJSON struct {
	Code        string `json:"code"`
	Severity    string `json:"severity"`
	MayEndanger bool   `json:"may_endanger,omitempty"`
	Accepted    bool   `json:"accepted,omitempty"`
	Server      string `json:"server,omitempty"`
	Found       string `json:"found"`
	Why         string `json:"why,omitempty"`
	Do          string `json:"do,omitempty"`
}

func (d *diagnosis) json(url string) doctorJSON {
	out := doctorJSON{Schema: schema, Store: d.store, Place: d.place, TTLMS: d.ttl.Milliseconds(),
		Sound: d.err == nil && d.dangers() == 0, Findings: []findingJSON{}}
	for i := range d.list {
		f := &d.list[i]
		out.Findings = append(out.Findings, findingJSON{Code: f.Code, Severity: f.Severity.String(),
			MayEndanger: f.MayEndanger,
			Accepted:    d.accepted[f.Code], Server: f.Server, Found: f.Found, Why: f.Why, Do: f.Do})
	}
	if d.err != nil {
		out.Error = open.Scrub(d.err.Error(), url)
	}
	return out
}

// text returns d for people. columns is the width of the terminal; 0: lines may be of any length.
func (d *diagnosis) text(columns int) string {
	var b strings.Builder
	place := cmp.Or(d.place, d.store)
	wrap(&b, columns, "", 0, fmt.Sprintf("%s, for leases of %v", show(place), d.ttl))
	servers := map[string]bool{}
	for i := range d.list {
		servers[d.list[i].Server] = true
	}
	delete(servers, "")
	tally := map[driver.Severity]int{}
	for i := range d.list {
		f := &d.list[i]
		mark := strings.ToUpper(f.Severity.String())
		switch {
		case f.Severity == driver.Fine:
			mark = "fine"
			tally[f.Severity]++
		case d.accepted[f.Code]:
			mark = "accepted"
		default:
			tally[f.Severity]++
		}
		if f.MayEndanger && !d.accepted[f.Code] {
			mark += " !"
		}
		if f.Severity == driver.Fine {
			if i == 0 || d.list[i-1].Severity != driver.Fine {
				b.WriteByte('\n')
			}
			wrap(&b, columns, fmt.Sprintf("%-11s", mark), 11, d.title(f, servers)+": "+f.Found)
			continue
		}
		b.WriteByte('\n')
		wrap(&b, columns, fmt.Sprintf("%-11s", mark), 11, d.title(f, servers))
		for _, part := range []struct{ label, text string }{{"found", f.Found}, {"why", f.Why}, {"do", f.Do}} {
			if part.text != "" {
				wrap(&b, columns, fmt.Sprintf("  %-9s", part.label), 11, part.text)
			}
		}
	}
	sum := fmt.Sprintf("%d endanger locks, %d unknown, %d slow them, %d fine", tally[driver.Endangers],
		tally[driver.Unclear], tally[driver.Slows], tally[driver.Fine])
	known := tally[driver.Endangers] + tally[driver.Unclear] + tally[driver.Slows] + tally[driver.Fine]
	if n := len(d.list) - known; n > 0 {
		sum += fmt.Sprintf(", %d accepted", n)
	}
	if d.err != nil {
		sum += "; the other checks could not be done"
	}
	b.WriteByte('\n')
	wrap(&b, columns, "", 0, sum)
	return b.String()
}

// title returns the code, and the server if there are several.
func (d *diagnosis) title(f *driver.Finding, servers map[string]bool) string {
	if f.Server != "" && len(servers) > 1 {
		return f.Code + " at " + show(f.Server)
	}
	return f.Code
}

// wrap writes head and text, wrapped at columns; further lines are indented. It does not break
// words, even longer ones.
func wrap(b *strings.Builder, columns int, head string, indent int, text string) {
	b.WriteString(head)
	used := len(head)
	for i, word := range strings.Fields(printable(text)) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case columns > 0 && used+1+n > columns-1:
			b.WriteByte('\n')
			b.WriteString(strings.Repeat(" ", indent))
			used = indent
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	b.WriteByte('\n')
}

// printable makes text, much of which servers chose, safe for a terminal.
func printable(text string) string {
	return replaceHidden(strings.Join(strings.Fields(text), " "), escaped)
}

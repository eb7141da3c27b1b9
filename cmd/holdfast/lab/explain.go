package lab

import (
	"fmt"
	"slices"
	"strings"
)

// Explain returns what a row shows, in words, and its order of events.
func (r *Row) Explain() string {
	var b strings.Builder
	paragraph := func(text string) {
		for _, line := range wrapped(text, 96) {
			b.WriteString(line + "\n")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s: %s (%s)\n\n", r.ID, r.Title, r.Store)
	paragraph(r.Why)
	paragraph("Where one meets it: " + r.Habit + ".")
	class := r.Class.Title()
	if r.Class == Cost {
		class = "waiting costs few requests, and ends with the lock"
	}
	paragraph(fmt.Sprintf("The promise that it breaks: %s (%s).", class, r.Class))
	paragraph("With holdfast: " + r.How + ".")
	fmt.Fprintf(&b, "Its commands\n  acquire  %s\n  release  %s\n", r.Acquire, r.Release)
	for _, more := range [][2]string{{"renew", r.Renew}, {"share", r.Share}, {"unshare", r.Unshare}} {
		if more[1] != "" {
			fmt.Fprintf(&b, "  %-8s %s\n", more[0], more[1])
		}
	}
	if r.Play != "" {
		fmt.Fprintf(&b, "\nThe order of events\n  %s\n", strings.Join(slices.Collect(lines(r.Play)), "\n  "))
	}
	fmt.Fprintf(&b, "\nSee it happen: holdfast lab run %s\n", r.ID)
	return b.String()
}

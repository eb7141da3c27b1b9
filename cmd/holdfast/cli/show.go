package cli

import (
	"strings"

	"github.com/holdfast-lock/holdfast/internal/plain"
)

// Others choose the names, notes and labels that holdfast shows; see package plain.

// show returns text for a column of a table, or for the end of a line.
func show(text string) string { return plain.Show(text) }

// word returns text for a place between other words.
func word(text string) string { return plain.Word(text) }

// hidden reports whether r cannot be seen or told from other text.
func hidden(r rune) bool { return plain.Hidden(r) }

// quote returns text as a Go string without hidden characters.
func quote(text string) string { return plain.Quote(text) }

// escaped returns r as in a Go string.
func escaped(r rune) string { return plain.Escaped(r) }

// replaceHidden replaces hidden characters, except line ends.
func replaceHidden(text string, by func(rune) string) string { return plain.ReplaceHidden(text, by) }

// oneLine turns text that others wrote into one line that is safe for a terminal, and replaces
// words that users do not know.
func oneLine(text string) string {
	text = strings.NewReplacer(noAnswer, "no answer in time", "\n", "; ").Replace(strings.TrimSpace(text))
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || hidden(r) }), " ")
}

// cut keeps text on one row of a terminal. Characters from Hangul on may be two columns wide.
func cut(text string, columns int) string {
	const wide = '\u1100'
	list, used, keep := []rune(text), 0, 0
	for i, r := range list {
		used++
		if r >= wide && !strings.ContainsRune("…·", r) {
			used++
		}
		if used <= columns-1 {
			keep = i + 1
		}
	}
	if used <= columns {
		return text
	}
	return string(list[:keep]) + "…"
}

// escapeJSON escapes hidden characters, such as \u009b. They occur only in strings.
func escapeJSON(text string) string { return plain.EscapeJSON(text) }

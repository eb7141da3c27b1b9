package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Others choose the names, notes and labels that holdfast shows. The text must not control the
// terminal, look like other text, or look like more columns than it is. So show and word quote
// whatever could, as a Go string, and are injective: two texts never look the same.

// show returns text for a column of a table, or for the end of a line.
func show(text string) string {
	if text == "" || text[0] == '"' || text[0] == ' ' || text[len(text)-1] == ' ' || strings.Contains(text, "  ") ||
		strings.ContainsFunc(text, hidden) {
		return quote(text)
	}
	return text
}

// word returns text for a place between other words.
func word(text string) string {
	if strings.ContainsAny(text, ` "=`) {
		return quote(text)
	}
	return show(text)
}

// hidden reports whether r cannot be seen or told from other text: control characters, invisible
// ones, and spaces other than the usual one.
func hidden(r rune) bool {
	const blank = '\u2800' // the pattern of Braille without a dot
	return !unicode.IsGraphic(r) || r == unicode.ReplacementChar || r == blank || r != ' ' && unicode.IsSpace(r) ||
		unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != ' '
}

// quote returns text as a Go string without hidden characters.
func quote(text string) string {
	return replaceHidden(strconv.QuoteToGraphic(text), escaped)
}

// escaped returns r as in a Go string.
func escaped(r rune) string {
	quoted := strconv.QuoteRuneToASCII(r)
	return quoted[1 : len(quoted)-1]
}

// replaceHidden replaces hidden characters, except line ends.
func replaceHidden(text string, by func(rune) string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && hidden(r) {
			b.WriteString(by(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

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
func escapeJSON(text string) string {
	return replaceHidden(text, func(r rune) string {
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			return fmt.Sprintf("\\u%04x\\u%04x", high, low)
		}
		return fmt.Sprintf("\\u%04x", r)
	})
}

// Package plain shows text that others chose: names, notes and labels of locks. The text must not
// control a terminal, look like other text, or look like more columns than it is. So Show and Word
// quote whatever could, as a Go string, and are injective: two texts never look the same.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Show returns text for a column of a table, or for the end of a line.
func Show(text string) string {
	if text == "" || text[0] == '"' || text[0] == ' ' || text[len(text)-1] == ' ' || strings.Contains(text, "  ") ||
		strings.ContainsFunc(text, Hidden) {
		return Quote(text)
	}
	return text
}

// Word returns text for a place between other words.
func Word(text string) string {
	if strings.ContainsAny(text, ` "=`) {
		return Quote(text)
	}
	return Show(text)
}

// Hidden reports whether r cannot be seen or told from other text: control characters, invisible
// ones, and spaces other than the usual one.
func Hidden(r rune) bool {
	const blank = '\u2800' // the pattern of Braille without a dot
	return !unicode.IsGraphic(r) || r == unicode.ReplacementChar || r == blank || r != ' ' && unicode.IsSpace(r) ||
		unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != ' '
}

// Quote returns text as a Go string without hidden characters.
func Quote(text string) string {
	return ReplaceHidden(strconv.QuoteToGraphic(text), Escaped)
}

// Escaped returns r as in a Go string.
func Escaped(r rune) string {
	quoted := strconv.QuoteRuneToASCII(r)
	return quoted[1 : len(quoted)-1]
}

// ReplaceHidden replaces hidden characters, except line ends.
func ReplaceHidden(text string, by func(rune) string) string {
	if !strings.ContainsFunc(text, Hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && Hidden(r) {
			b.WriteString(by(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Line returns text as one line without hidden characters.
func Line(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || Hidden(r) }), " ")
}

// EscapeJSON escapes the hidden characters of JSON, such as \u009b. They occur only in strings.
func EscapeJSON(text string) string {
	return ReplaceHidden(text, func(r rune) string {
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			return fmt.Sprintf("\\u%04x\\u%04x", high, low)
		}
		return fmt.Sprintf("\\u%04x", r)
	})
}

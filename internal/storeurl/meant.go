package storeurl

import (
	"fmt"
	"slices"
	"strings"
)

// Meant returns a question with the entry of known that is most like word, a parameter or another
// word of a user, or "".
func Meant(word string, known []string) string {
	begins := func(k string) bool { return len(strings.Trim(word, "-")) > 1 && strings.HasPrefix(k, word) }
	best, least := "", 1+max(2, len(word)/3)
	if i := slices.IndexFunc(known, begins); i >= 0 && !slices.ContainsFunc(known[i+1:], begins) {
		return fmt.Sprintf(" (did you mean %s?)", known[i])
	}
	for _, k := range known {
		if d := distance(word, k); d < least && d < max(len(word), len(k)) { // something is the same
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance is how many bytes must be inserted, removed or changed to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0] // of the row above, in the column to the left
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

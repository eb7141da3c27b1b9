package observe

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Class returns a class for the name of a lock, so that metrics have few values: every UUID, every
// run of digits, every hexadecimal word of 8 or more characters with a digit in it, and every word of
// 20 or more letters and digits with at least two digits becomes "*". So "order/42" and "order/43"
// are "order/*", and "tenant/acme" stays as it is. A word is a run of ASCII letters and digits.
func Class(name string) string {
	var b strings.Builder
	for name != "" {
		if n := wordLen(name); n == 0 {
			r, size := utf8.DecodeRuneInString(name)
			if unicode.IsDigit(r) {
				star(&b)
			} else {
				b.WriteRune(r)
			}
			name = name[size:]
		} else if u := uuidLen(name); u > 0 {
			star(&b)
			name = name[u:]
		} else {
			writeWord(&b, name[:n])
			name = name[n:]
		}
	}
	return b.String()
}

// star writes "*", unless b ends with one.
func star(b *strings.Builder) {
	if !strings.HasSuffix(b.String(), "*") {
		b.WriteByte('*')
	}
}

func writeWord(b *strings.Builder, word string) {
	digits, hex := 0, true
	for i := range len(word) {
		if isDigit(word[i]) {
			digits++
		} else if !isHex(word[i]) {
			hex = false
		}
	}
	if hex && len(word) >= 8 && digits > 0 || len(word) >= 20 && digits >= 2 {
		star(b)
		return
	}
	for i := range len(word) {
		if isDigit(word[i]) {
			star(b)
		} else {
			b.WriteByte(word[i])
		}
	}
}

// wordLen returns the length of the word that s begins with; 0: none.
func wordLen(s string) int {
	n := 0
	for n < len(s) && (isDigit(s[n]) || 'a' <= s[n]|0x20 && s[n]|0x20 <= 'z') {
		n++
	}
	return n
}

// uuidLen returns the length of the UUID with hyphens that s begins with; 0: none. It ends with a
// word.
func uuidLen(s string) int {
	n := 0
	for i, part := range [...]int{8, 4, 4, 4, 12} {
		if i > 0 {
			if n >= len(s) || s[n] != '-' {
				return 0
			}
			n++
		}
		if wordLen(s[n:]) != part {
			return 0
		}
		for range part {
			if !isHex(s[n]) {
				return 0
			}
			n++
		}
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// Other is the class of names that came when there were as many classes as allowed.
const Other = "other"

// DefaultClasses is how many classes Classes has unless it is told otherwise.
const DefaultClasses = 100

// Classes turns names of locks into a bounded number of classes. It is safe for concurrent use.
type Classes struct {
	of   func(string) string
	most int
	mu   sync.RWMutex
	all  map[string]struct{}
}

// NewClasses returns Classes that use of, or Class if of is nil. The first most different classes
// keep their names, or the first DefaultClasses if most is not positive. All later ones are Other.
// of may be called concurrently.
func NewClasses(of func(name string) string, most int) *Classes {
	if of == nil {
		of = Class
	}
	if most <= 0 {
		most = DefaultClasses
	}
	return &Classes{of: of, most: most, all: map[string]struct{}{}}
}

// Of returns the class of a name, valid UTF-8. A name for which the function panics is Other.
func (c *Classes) Of(name string) (class string) {
	defer func() {
		if recover() != nil {
			class = Other
		}
	}()
	class = strings.ToValidUTF8(c.of(name), "\uFFFD")
	c.mu.RLock()
	_, known := c.all[class]
	full := len(c.all) >= c.most
	c.mu.RUnlock()
	switch {
	case known:
		return class
	case full:
		return Other
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.all[class]; !known {
		if len(c.all) >= c.most {
			return Other
		}
		c.all[strings.Clone(class)] = struct{}{}
	}
	return class
}

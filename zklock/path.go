package zklock

import (
	"strings"
	"unicode/utf8"
)

// Children of a lock's folder that are not contenders of it.
const (
	locksDir  = "locks"  // a semaphore's line, as Curator has it
	leasesDir = "leases" // a semaphore's permits, as Curator has it
	latchNode = "latch"

	// These come and go; no level of a name is written like this.
	clockNode = "%clock"
	sealNode  = "%seal"
)

// folder is the path of a lock's folder. Levels of the name are levels of the path, so
// "orders/42" is where somebody who uses Curator expects it.
func (b *Backend) folder(name string) string {
	var p strings.Builder
	p.WriteString(b.root)
	for i, level := range strings.Split(name, "/") {
		p.WriteByte('/')
		p.WriteString(encodeLevel(level, i == 0, b.root == ""))
	}
	return p.String()
}

// encodeLevel makes a node's name of a level of a lock's name. What ZooKeeper does not
// allow is escaped as a URL escapes it, and so is what would be taken for something else
// in the folder of the lock one level up.
func encodeLevel(level string, first, top bool) string {
	if level == "" {
		return "%"
	}
	clean := true
	for _, r := range level {
		clean = clean && allowed(r)
	}
	if clean {
		switch {
		case level == "." || level == "..":
			return escape(level[:1]) + level[1:]
		case first && top && level == "zookeeper":
			return escape(level[:1]) + level[1:]
		case !first && (level == locksDir || level == leasesDir || level == latchNode):
			return escape(level[:1]) + level[1:]
		case !first && contends(level):
			return level[:len(level)-1] + escape(level[len(level)-1:])
		}
		return level
	}
	var b strings.Builder
	for _, r := range level {
		if allowed(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(escape(string(r)))
		}
	}
	node := b.String()
	if !first && contends(node) { // then the last digit stands for itself
		return node[:len(node)-1] + escape(node[len(node)-1:])
	}
	return node
}

func contends(level string) bool { _, ok := parseNode(level); return ok }

// allowed reports whether r may stand in a node's name as it is. ZooKeeper counts in
// UTF-16 and refuses surrogates, so nothing above the first plane.
func allowed(r rune) bool {
	switch {
	case r == '%', r < 0x20, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
		return false
	}
	return true
}

func escape(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// decodeLevel reverses encodeLevel. It reports false for a node that no name leads to.
func decodeLevel(node string, first, top bool) (string, bool) {
	if node == "%" {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(node); i++ {
		if node[i] != '%' {
			b.WriteByte(node[i])
			continue
		}
		if i+2 >= len(node) {
			return "", false
		}
		hi, lo := unhex(node[i+1]), unhex(node[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	level := b.String()
	if !utf8.ValidString(level) || strings.Contains(level, "/") || encodeLevel(level, first, top) != node {
		return "", false
	}
	return level, true
}

func unhex(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }

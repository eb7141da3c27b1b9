package zklock

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

// Children of a lock's folder that are not contenders of it.
const (
	locksDir  = "locks"  // a semaphore's queue, as in Curator
	leasesDir = "leases" // a semaphore's permits, as in Curator
	latchNode = "latch"
	limitNode = reserved + ":limit" // a semaphore's limit that is set

	// These exist only for a moment; see momentary.
	clockNode   = reserved + ":time" // also a prefix; ":clock-" would end as Curator's "lock-" does
	sealNode    = reserved + ":seal"
	pendingNode = reserved + ":latch-" // a prefix: the announcement of a latch, or of a limit
)

// momentary reports whether a node exists only for a moment.
func momentary(node string) bool {
	return strings.HasPrefix(node, clockNode) || node == sealNode || strings.HasPrefix(node, pendingNode)
}

// reserved is the prefix of nodes that only holdfast creates. A name with such a level is refused.
const reserved = "%holdfast"

// escaped is the prefix of a level that ZooKeeper cannot have as it is.
const escaped = reserved + "%"

// folder returns the path of a lock's folder. A level that can be part of a path is used unchanged,
// so that Curator on the same path has the same lock. Other levels are escaped, and begin with a
// prefix that names cannot have.
func (b *Backend) folder(name string) string {
	var p strings.Builder
	p.WriteString(b.root)
	for level := range strings.SplitSeq(name, "/") {
		p.WriteByte('/')
		p.WriteString(encodeLevel(level))
	}
	return p.String()
}

// check refuses invalid names, and names whose path means something else to Curator or to the lock
// one level up.
func (b *Backend) check(name string) error {
	if err := driver.CheckName(name); err != nil || b.mode == Single {
		return err
	}
	first := true
	for level := range strings.SplitSeq(name, "/") {
		if why := taken(level, first, b.root == ""); why != "" {
			return invalid("name %q: on ZooKeeper it cannot have the level %q, which is %s", name, level, why)
		}
		first = false
	}
	return nil
}

// taken returns what else a level means in a path; "" if nothing.
func taken(level string, first, top bool) string {
	switch {
	case strings.HasPrefix(level, reserved):
		return fmt.Sprintf("reserved: levels that begin with %s stand for text that cannot be part of a path", reserved)
	case first:
		if top && level == "zookeeper" {
			return "ZooKeeper's own"
		}
	case level == locksDir || level == leasesDir:
		return "a part of the semaphore one level up"
	case level == latchNode:
		return "a part of the latch one level up"
	case contends(level):
		return "like a node of the lock one level up"
	}
	return ""
}

// encodeLevel turns a level of a lock's name into a node's name.
func encodeLevel(level string) string {
	if fit(level) {
		return level
	}
	return escaped + escape(level, level == "." || level == "..")
}

// fit reports whether ZooKeeper accepts level as a node's name.
func fit(level string) bool {
	if level == "" || level == "." || level == ".." {
		return false
	}
	for _, r := range level {
		if !allowed(r) {
			return false
		}
	}
	return true
}

func contends(level string) bool { _, ok := parseNode(level); return ok }

// allowed reports whether r can be used unchanged in a node's name. ZooKeeper counts in UTF-16 and
// refuses surrogates, so nothing above the first plane is allowed.
func allowed(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
		return false
	}
	return true
}

// escape writes characters that are not allowed, and the percent sign, as a URL does. With dot it
// escapes the first character, too.
func escape(level string, dot bool) string {
	var b strings.Builder
	for i, r := range level {
		if allowed(r) && r != '%' && (i > 0 || !dot) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape reverses escape. It returns false for text that escape does not write.
func unescape(node string, dot bool) (string, bool) {
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
	return level, utf8.ValidString(level) && !strings.Contains(level, "/") && escape(level, dot) == node
}

func unhex(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }

// decodeLevel reverses encodeLevel. It returns false for a node that belongs to no name.
func decodeLevel(node string, first, top bool) (string, bool) {
	text, ok := strings.CutPrefix(node, escaped)
	if !ok {
		return node, taken(node, first, top) == "" && fit(node)
	}
	level, ok := unescape(text, text == "%2E" || text == "%2E.")
	return level, ok && encodeLevel(level) == node
}

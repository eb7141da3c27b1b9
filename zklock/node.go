package zklock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// role is what a node of a lock's folder stands for.
type role uint8

const (
	exclusive role = iota
	shared
	lease // a semaphore's permit
)

func (r role) mode() driver.Mode {
	return [...]driver.Mode{driver.Exclusive, driver.Shared, driver.Permits}[r]
}

// suffixes are what comes before the sequence number of a contender's node: Curator's
// (InterProcessMutex, whose name go-zookeeper/zk has too; InterProcessReadWriteLock;
// InterProcessSemaphoreV2), and kazoo's, which we only read.
var suffixes = []struct {
	text string
	role role
}{
	{mutexSuffix[1:], exclusive}, {writeSuffix[1:], exclusive}, {readSuffix[1:], shared}, {leaseSuffix[1:], lease},
	{"__lock__", exclusive}, {"__rlock__", shared},
}

const (
	mutexSuffix = "-lock-"
	writeSuffix = "-__WRIT__"
	readSuffix  = "-__READ__"
	leaseSuffix = "-lease-"
)

// node is the node of a contender.
type node struct {
	name string
	role role
	seq  int64
	uuid string // empty if the name has none of Curator's shape
}

// maxSequence is the last sequence number that is used. The parent's counter sticks or
// wraps at 2147483647 (ZOOKEEPER-3249, ZOOKEEPER-4706), and then no order is left; the
// distance is for requests that are under way.
const maxSequence = 1<<31 - 1 - 100_000

// parseNode reads a child's name. It reports false if that is no contender's.
func parseNode(name string) (node, bool) {
	n := node{name: name}
	if rest, ok := strings.CutPrefix(name, "_c_"); ok && len(rest) > 36 && rest[36] == '-' {
		n.uuid = rest[:36]
	}
	if len(name) < 10 || name[len(name)-1]-'0' > 9 {
		return n, false
	}
	if n.uuid != "" && len(name) > shaped && name[len(name)-10] != '-' { // nearly all are of this shape, and lines may be long
		for _, s := range suffixes[:4] {
			if digits, ok := strings.CutPrefix(name[shaped:], s.text); ok && len(digits) == 10 {
				if n.seq, ok = decimal(digits); ok {
					n.role = s.role
					return n, true
				}
			}
		}
	}
	for _, s := range suffixes {
		i := strings.LastIndex(name, s.text)
		if i < 0 {
			continue
		}
		digits := name[i+len(s.text):]
		if len(digits) < 10 || len(digits) > 11 || digits[0] == '+' { // Java's %010d of an int
			continue
		}
		seq, err := strconv.ParseInt(digits, 10, 32)
		if err != nil {
			continue
		}
		n.role, n.seq = s.role, seq
		return n, true
	}
	return n, false
}

// shaped is where what follows the UUID and its dash begins in a name of Curator's shape.
const shaped = 3 + 36 + 1

func decimal(digits string) (n int64, ok bool) {
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, n < 1<<31
}

// nodeName is a contender's name without a sequence number.
func nodeName(uuid, suffix string) string { return "_c_" + uuid + suffix }

// sequenced is nodeName with the number of a node that this one takes the place of.
func sequenced(uuid, suffix string, seq int64) string {
	digits := strconv.FormatInt(seq, 10)
	return nodeName(uuid, suffix) + strings.Repeat("0", max(0, 10-len(digits))) + digits
}

// uuidOf is the UUID of a request's nodes: of the custom version, 8, so that it is
// not one that Curator draws. It follows from the ID, so that whoever asks again finds them.
func uuidOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	h := []byte(hex.EncodeToString(sum[:16]))
	h[12], h[16] = '8', ownMark
	return string(h[:8]) + "-" + string(h[8:12]) + "-" + string(h[12:16]) + "-" + string(h[16:20]) + "-" + string(h[20:])
}

// The digit of a UUID of ours that tells what keeps a name taken for a minimum hold,
// which is nobody's, from the node of the request that it was made for.
const (
	markAt   = 19
	ownMark  = '8'
	keptMark = 'b'
)

func keptUUID(uuid string) string {
	return uuid[:markAt] + string(keptMark) + uuid[markAt+1:]
}

// kept reports whether n keeps the name taken for nobody.
func (n node) kept() bool { return n.uuid != "" && n.uuid[14] == '8' && n.uuid[markAt] == keptMark }

// request is the UUID of the request that n was made for.
func (n node) request() string {
	if n.kept() {
		return n.uuid[:markAt] + string(ownMark) + n.uuid[markAt+1:]
	}
	return n.uuid
}

// line is the contenders of a folder in the order of their arrival.
type line []node

// listed is what a folder has.
type listed struct {
	line
	latch, semaphore bool // there are nodes of those names
}

// read sorts out a folder's children. Children that are no contenders are left alone.
func read(children []string) listed {
	l := listed{line: make(line, 0, len(children))}
	for _, c := range children {
		switch n, ok := parseNode(c); {
		case ok:
			l.line = append(l.line, n)
		case c == latchNode:
			l.latch = true
		case c == locksDir || c == leasesDir:
			l.semaphore = true
		}
	}
	// By number, not by text: beyond ten digits and below zero the two differ. Equal numbers
	// are one place: a grant that moved to another node, or is kept.
	slices.SortFunc(l.line, func(a, b node) int {
		if a.seq != b.seq {
			return cmp.Compare(a.seq, b.seq)
		}
		return strings.Compare(a.name, b.name)
	})
	return l
}

// of returns the node of this UUID.
func (l line) of(uuid string) (node, bool) {
	i := slices.IndexFunc(l, func(n node) bool { return n.uuid == uuid })
	if i < 0 {
		return node{}, false
	}
	return l[i], true
}

// before returns those in front of a place.
func (l line) before(seq int64) line {
	i, _ := slices.BinarySearchFunc(l, seq, func(n node, seq int64) int { return cmp.Compare(n.seq, seq) })
	return l[:i]
}

// way returns those that are in the way of a contender: of a writer everybody in front,
// of a reader the writers. It has the lock when there are none.
func (l line) way(r role, seq int64) line {
	front := l.before(seq)
	if r == exclusive {
		return front
	}
	return slices.DeleteFunc(slices.Clone(front), func(n node) bool { return n.role == shared })
}

// holding returns how many nodes at the front have the lock: the first writer, or all readers
// before it.
func (l line) holding() int {
	for i, n := range l {
		if n.role == exclusive {
			if i > 0 && n.seq != l[0].seq {
				return i
			}
			return len(l.before(n.seq + 1))
		}
	}
	return len(l)
}

// permits counts the permits in use of a semaphore's leases. One that is kept and held at the
// same time is one.
func (l line) permits() int {
	n := len(l)
	for _, k := range l {
		if k.kept() {
			if _, held := l.of(k.request()); held {
				n--
			}
		}
	}
	return n
}

// head is who has the lock, one of them if they are many.
func (l line) head() node {
	if l[0].kept() {
		if n, ok := l.of(l[0].request()); ok {
			return n
		}
	}
	return l[0]
}

// marks are those that keep the name taken for nobody, but for a minimum hold.
func (l line) marks() (out line) {
	for _, n := range l {
		if n.kept() {
			if _, held := l.of(n.request()); !held {
				out = append(out, n)
			}
		}
	}
	return out
}

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

// role is what a contender's node is for.
type role uint8

const (
	exclusive role = iota
	shared
	lease // a semaphore's permit
)

func (r role) mode() driver.Mode {
	return [...]driver.Mode{driver.Exclusive, driver.Shared, driver.Permits}[r]
}

// suffixes are what stands before the sequence number in a contender's name. The first four are
// Curator's (InterProcessMutex, whose suffix go-zookeeper/zk uses too; InterProcessReadWriteLock;
// InterProcessSemaphoreV2). The others are kazoo's, which holdfast only reads.
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

// node is a contender's node.
type node struct {
	name string
	role role
	seq  int64
	uuid string // empty if the name has not Curator's form
}

// maxSequence is the last sequence number in use. At 2147483647 the folder's counter stops or wraps
// (ZOOKEEPER-3249, ZOOKEEPER-4706), and the order is lost. The distance is for requests that are on
// their way.
const maxSequence = 1<<31 - 1 - 100_000

// parseNode reads a child's name. It returns false if the child is no contender.
func parseNode(name string) (node, bool) {
	n := node{name: name}
	if strings.HasPrefix(name, reserved) { // some end with a sequence number, too
		return n, false
	}
	if rest, ok := strings.CutPrefix(name, "_c_"); ok && len(rest) > 36 && rest[36] == '-' {
		n.uuid = rest[:36]
	}
	if len(name) < 10 || name[len(name)-1]-'0' > 9 {
		return n, false
	}
	// Nearly all names, and queues may be long.
	if n.uuid != "" && len(name) > shaped && name[len(name)-10] != '-' {
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
		if len(digits) < 10 || len(digits) > 11 || digits[0] == '+' { // %010d of an int in Java
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

// shaped is the offset behind the UUID and its dash in a name of Curator's form.
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

// nodeName returns a contender's name without a sequence number.
func nodeName(uuid, suffix string) string { return "_c_" + uuid + suffix }

// sequenced returns a contender's name with the sequence number of the node that it replaces.
func sequenced(uuid, suffix string, seq int64) string {
	digits := strconv.FormatInt(seq, 10)
	return nodeName(uuid, suffix) + strings.Repeat("0", max(0, 10-len(digits))) + digits
}

// uuidOf returns the UUID of a request's nodes. It has version 8 (custom), so Curator never draws
// it. It follows from the ID, so a repeated request finds its nodes.
func uuidOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	h := []byte(hex.EncodeToString(sum[:16]))
	h[12], h[16] = '8', ownMark
	return string(h[:8]) + "-" + string(h[8:12]) + "-" + string(h[12:16]) + "-" + string(h[16:20]) + "-" + string(h[20:])
}

// This digit of the UUID tells a mark (a node that keeps a name taken for a minimum hold) from the
// node of its request.
const (
	markAt   = 19
	ownMark  = '8'
	keptMark = 'b'
)

func keptUUID(uuid string) string {
	return uuid[:markAt] + string(keptMark) + uuid[markAt+1:]
}

// kept reports whether n is a mark: it keeps the name taken, although nobody holds it.
func (n node) kept() bool { return n.uuid != "" && n.uuid[14] == '8' && n.uuid[markAt] == keptMark }

// request returns the UUID of the request for which n was created.
func (n node) request() string {
	if n.kept() {
		return n.uuid[:markAt] + string(ownMark) + n.uuid[markAt+1:]
	}
	return n.uuid
}

// queue is the contenders of a folder in order of arrival, holders included.
type queue []node

// contents is what a folder contains.
type contents struct {
	queue
	latch, semaphore, limit bool     // there are nodes of these names
	pending                 []string // the announcements of latches and limits
}

// parseDir sorts a folder's children. It ignores children that are no contenders.
func parseDir(children []string) contents {
	l := contents{queue: make(queue, 0, len(children))}
	for _, c := range children {
		switch n, ok := parseNode(c); {
		case ok:
			l.queue = append(l.queue, n)
		case c == latchNode:
			l.latch = true
		case c == locksDir || c == leasesDir:
			l.semaphore = true
		case c == limitNode:
			l.limit = true
		case strings.HasPrefix(c, pendingNode):
			l.pending = append(l.pending, c)
		}
	}
	// By number, not by text: the two differ beyond ten digits and below zero. Equal numbers are
	// one place: a grant that moved to another node, or is kept.
	slices.SortFunc(l.queue, func(a, b node) int {
		if a.seq != b.seq {
			return cmp.Compare(a.seq, b.seq)
		}
		return strings.Compare(a.name, b.name)
	})
	return l
}

// find returns the node with this UUID.
func (l queue) find(uuid string) (node, bool) {
	i := slices.IndexFunc(l, func(n node) bool { return n.uuid == uuid })
	if i < 0 {
		return node{}, false
	}
	return l[i], true
}

// before returns the nodes in front of a place.
func (l queue) before(seq int64) queue {
	i, _ := slices.BinarySearchFunc(l, seq, func(n node, seq int64) int { return cmp.Compare(n.seq, seq) })
	return l[:i]
}

// blockers returns the nodes that block a contender: for a writer all nodes in front, for a reader
// the writers. The contender has the lock when there are none.
func (l queue) blockers(r role, seq int64) queue {
	front := l.before(seq)
	if r == exclusive {
		return front
	}
	return slices.DeleteFunc(slices.Clone(front), func(n node) bool { return n.role == shared })
}

// holding returns how many nodes at the front have the lock: the first writer, or all readers
// before it.
func (l queue) holding() int {
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

// permits counts a semaphore's permits in use. A permit that is held and also marked counts once.
func (l queue) permits() int {
	n := len(l)
	for _, k := range l {
		if k.kept() {
			if _, held := l.find(k.request()); held {
				n--
			}
		}
	}
	return n
}

// head returns the node of the holder, or of one of several.
func (l queue) head() node {
	if l[0].kept() {
		if n, ok := l.find(l[0].request()); ok {
			return n
		}
	}
	return l[0]
}

// marks returns the nodes that keep the name taken for a minimum hold after its holder has released
// it.
func (l queue) marks() (out queue) {
	for _, n := range l {
		if n.kept() {
			if _, held := l.find(n.request()); !held {
				out = append(out, n)
			}
		}
	}
	return out
}

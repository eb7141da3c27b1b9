package redislock

import (
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// The keys. A name belongs to one of 64 shards, whose number is the hash tag. So all keys of a
// script are in one slot of a Cluster, and each shard can have an index. A name ends its keys byte
// for byte, without an encoding.
//
//	hf:{3f}:l:NAME  string: the state of NAME, see below
//	hf:{3f}:z:NAME  zset: ends of grants, queue, deadlines of places; see state.lua
//	hf:{3f}:m:NAME  hash: h<id> a grant of a group, w<id> a place in the queue, s the
//	                number of the last place; of a latch
//	                d<id> has counted down, a<id> waits
//	hf:{3f}:h:NAME  zset: the history of NAME, which may be empty; see below
//	hf:{3f}:t       string: the floor of the shard's tokens; see common.lua
//	hf:{3f}:i       zset, all scores 0: the shard's names, for listing
//	hf:s:SESSION    channel: "<id> <token>" hands a lock over, "<id> 0" means: ask again,
//	                "<id> w" calls a grant back, because somebody waits for it
//	hf:{3f}:s:SESSION
//	                the same as a sharded channel, in a Cluster, for waiters in that shard
//
// The state has fields of fixed width, so that string.sub can read them. Times are readings of the
// server's clock in microseconds. Scripts compare a deadline with TIME, and never rely on the
// expiry of a key: keys live much longer than what they protect.
//
//	1      F free, X held exclusively, S by a group of readers, P of permits, L latch
//	2      1 if there are waiters
//	3-18   the last token
//	X:     19-34 renewed at, 35-50 TTL, 51-66 minimum hold, 67-82 granted at, id,
//	       session, info
//	S, P:  19-28 sum of n, 29-38 number of grants, 39-48 limit, s if it was set (P)
//	L:     19-34 count
//
// The record of a place has an n: the number of permits, or for x how many tokens the grant may take.
// How many it took, all or one, follows from its token: see either in hooks.lua.
// A length of two digits precedes id and session. In a place in the queue the first character of
// the session says where the session listens in a Cluster: + on the sharded channel, - on the other
// one, for which PUBLISH does not count all subscribers. In an exclusive grant a ! in front of that
// and of the session says that the grant calls its session back. So the scripts of all clients
// understand each other, also during an upgrade of a Cluster to Redis 7.
//
// A key of another type, or a value in no form above, damages its name and no other name. A script
// for that name then changes nothing and answers this error:
//
//	DAMAGED KEY: WHAT IS WRONG WITH IT
//
// Scripts for several names continue with the others. take.lua, drop.lua and renew.lua leave a
// damaged name to the full script. refresh.lua answers five numbers for each grant or place. For
// one that is gone (state 1), the third number, the token, gives the reason:
//
//	0  the grant or the place has ended
//	1  there is no record of the name (driver.Change.Missing)
//	2  the record is damaged

// A history has an element for each entry. Its score is when the entry was added, in milliseconds,
// followed by three digits: one less than how many entries AddHistory was to keep. The next entry
// has a later time, at least by a millisecond, so the order of adding outlives a clock that is set
// back. History replays the lengths, so the servers of a quorum need no other record of them.
//
// No script for a lock reads or writes a history, and no index has it. It expires HistoryLife after
// its last entry. A history of another type, or with a score that no script gives, is damaged, and
// its lock is not.

const (
	shards = 64
	digits = "0123456789abcdef"

	maxToken = 1<<53 - 1 // Lua's numbers are exact up to this

	callsBack = "!" // before the session of a grant: see above
)

// shardTags has the hash tag of each shard.
var shardTags = func() (tags [shards]string) {
	for i := range tags {
		tags[i] = string([]byte{digits[i>>4], digits[i&15]})
	}
	return tags
}()

func shardOf(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	s := h.Sum32()
	return int((s ^ s>>16) % shards)
}

// call builds the keys and arguments of one script in one string.
type call struct {
	buf  []byte
	ends [16]int
	strs [16]string
	n    int
	keys int
}

var callPool = sync.Pool{New: func() any { return new(call) }}

func newCall() *call {
	c := callPool.Get().(*call)
	c.buf, c.n, c.keys = c.buf[:0], 0, 0
	return c
}

// free returns c to the pool. Strings taken from c stay valid.
func (c *call) free() {
	clear(c.strs[:])
	callPool.Put(c)
}

// end ends the current string.
func (c *call) end() *call {
	c.ends[c.n] = len(c.buf)
	c.n++
	return c
}

func (c *call) str(s string) *call {
	c.buf = append(c.buf, s...)
	return c
}

// padded appends n in that many digits, with leading zeros.
func (c *call) padded(n uint64, width int) *call {
	from := len(c.buf)
	for range width {
		c.buf = append(c.buf, '0')
	}
	for i := from + width - 1; n > 0 && i >= from; i-- {
		c.buf[i] = byte('0' + n%10)
		n /= 10
	}
	return c
}

func (c *call) number(n int) *call {
	c.buf = strconv.AppendInt(c.buf, int64(n), 10)
	return c
}

func (c *call) micros(d time.Duration) *call {
	if d > 0 && d < time.Microsecond {
		d = time.Microsecond
	}
	return c.padded(uint64(max(d, 0)/time.Microsecond), 16)
}

// counted appends the length of s in two digits, then s.
func (c *call) counted(s string) *call {
	return c.padded(uint64(len(s)), 2).str(s)
}

// tag appends the prefix of a shard's keys.
func (c *call) tag(prefix string, shard int) *call {
	c.buf = append(append(c.buf, prefix...), '{', digits[shard>>4], digits[shard&15], '}', ':')
	return c
}

// tagged is name with another hash tag than a shard's.
func (c *call) tagged(prefix, tag, name, kinds string) *call {
	for i := range len(kinds) {
		c.str(prefix).str("{").str(tag).str("}:")
		c.kind(kinds[i], name)
	}
	c.keys = c.n
	return c
}

// kind ends a key of name that has its hash tag already.
func (c *call) kind(kind byte, name string) {
	c.buf = append(c.buf, kind)
	if kind != 't' && kind != 'i' {
		c.buf = append(append(c.buf, ':'), name...)
	}
	c.end()
}

// name adds the keys of name, one for each letter of kinds.
func (c *call) name(prefix, name, kinds string) *call {
	shard := shardOf(name)
	for i := range len(kinds) {
		c.tag(prefix, shard).kind(kinds[i], name)
	}
	c.keys = c.n
	return c
}

// done cuts the strings. Nothing may be appended after it.
func (c *call) done() *call {
	s, from := string(c.buf), 0
	for i, to := range c.ends[:c.n] {
		c.strs[i], from = s[from:to], to
	}
	return c
}

func (c *call) keyList() []string { return c.strs[:c.keys] }
func (c *call) argList() []string { return c.strs[c.keys:c.n] }

// modes has the letter of each driver.Mode at its index.
const modes = "?xsp"

func modeOf(letter string) driver.Mode {
	switch letter {
	case "x", "X":
		return driver.Exclusive
	case "s", "S":
		return driver.Shared
	case "p", "P":
		return driver.Permits
	}
	return 0
}

package redislock

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A Format makes a Backend share its locks with another lock library. The Backend keeps its own
// record of a name, and beside it the keys of the other library. The scripts change both in one
// step. So a name has one holder, whichever library it uses; the queue, the tokens and the
// descriptions are those of the record.
//
// Package redisson has the only Format that exists.
type Format struct {
	// Name is what Backend.Name returns.
	Name string

	// Lua takes the place of lua/format.lua: it has the same functions.
	Lua string

	// Scan is a script that looks for names in use: see scan.lua of package redisson.
	Scan string

	// Check returns an ErrInvalid for a name that the other library cannot use as this kind. Unused:
	// the kind does not matter.
	Check func(name string, kind driver.Kind, cluster bool) error

	// MostPermits bounds the permits of one request, if each costs time in a script; 0: no bound.
	MostPermits int

	// Tag returns the hash tag of the other library's keys. In a Cluster all keys of a name have it.
	Tag func(name string) string

	// Channel returns the channel on which the other library announces that name may be free for the
	// request id of this mode; mode 0: that a latch has reached zero. rw is Request.ReadWrite.
	Channel func(name, id string, mode driver.Mode, rw bool) string

	// Beat is how often a request for a mutex that waits gives a sign of life, to keep its place in the
	// other library's queue. 0: never; that library has no queue.
	Beat time.Duration
}

// NewFormat is New with a Format. The Backend has no fast paths: every change of a lock changes the
// other library's keys, too.
func NewFormat(conn Conn, cfg *Config, f *Format) *Backend {
	return newBackend(conn, cfg, nil, f)
}

// tagged reports whether the keys of a name have a hash tag of their own, and no shard's.
func (b *Backend) tagged() bool { return b.format != nil && b.cluster }

// tagOf returns the hash tag of the keys of name.
func (b *Backend) tagOf(name string) string {
	if b.tagged() {
		return b.format.Tag(name)
	}
	return shardTags[shardOf(name)]
}

// keys begins a call with the keys of name, one for each letter of kinds. With a tag of its own, it adds
// the key of an index, which never exists. So no script for a lock runs while the slot moves: each
// server would see some keys of the other library, and take the others for deleted.
func (b *Backend) keys(name, kinds string) *call {
	if !b.tagged() {
		return newCall().name(b.prefix, name, kinds)
	}
	if kinds == "lzmt" {
		kinds = "lzmti"
	}
	return newCall().tagged(b.prefix, b.format.Tag(name), name, kinds)
}

// checkFormat returns why the format does not allow name as this kind, or nil.
func (b *Backend) checkFormat(name string, kind driver.Kind) error {
	if b.format == nil {
		return nil
	}
	if strings.HasPrefix(name, b.prefix+"{") {
		return fmt.Errorf("%w name %q: keys of holdfast begin with %s", driver.ErrInvalid, name, b.prefix+"{")
	}
	return b.format.Check(name, kind, b.cluster)
}

// checkPermits returns an ErrInvalid if a request wants more permits than the format allows.
func (b *Backend) checkPermits(req *driver.Request) error {
	if b.format == nil || b.format.MostPermits == 0 || req.Mode != driver.Permits || req.N <= b.format.MostPermits {
		return nil
	}
	return fmt.Errorf("%w number of permits %d: %s allows 1 to %d for one request", driver.ErrInvalid, req.N,
		b.format.Name, b.format.MostPermits)
}

// kindOf returns what a request of this mode makes of a name.
func kindOf(m driver.Mode) driver.Kind {
	if m == driver.Permits {
		return driver.Semaphore
	}
	return driver.Lock
}

// writer is the n of a write lock in the record of a place, if there is a Format. A mutex has 1.
const writer = 2

// numberOf returns the n of a request in the record of its place. That of an exclusive one is how many
// tokens its grant may take: it has no number of permits.
func (b *Backend) numberOf(req *driver.Request) int {
	switch {
	case req.Mode != driver.Exclusive:
		return req.N
	case b.format != nil && req.ReadWrite:
		return writer
	}
	return req.Block()
}

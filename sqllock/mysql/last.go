package mysql

import (
	"hash/maphash"
	"sync/atomic"
)

// last records the state of names when last seen from here, which shows what statement will
// probably work. If that statement does not match, it does nothing, and another one follows. So
// names may share entries.
type last struct {
	seed   maphash.Seed
	places [1024]atomic.Uint32
}

const (
	unknown   = iota
	wasFree   // released, without waiters
	wasTaken  // was free, and was taken
	wasShared // has waiters, or was not free
)

func newLast() *last { return &last{seed: maphash.MakeSeed()} }

func (l *last) of(name string) *atomic.Uint32 {
	return &l.places[maphash.String(l.seed, name)%uint64(len(l.places))]
}

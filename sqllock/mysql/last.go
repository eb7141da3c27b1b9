package mysql

import (
	"hash/maphash"
	"sync/atomic"
)

// last is what a name was like when it was last seen from here, which tells what statement will probably do. If
// it does not, nothing was done, and another will; so it does not matter that names share places here.
type last struct {
	seed   maphash.Seed
	places [1024]atomic.Uint32
}

const (
	unknown   = iota
	wasFree   // it was released, and nobody waited
	wasTaken  // it was free, and was taken
	wasShared // somebody waited for it, or could not have it
)

func newLast() *last { return &last{seed: maphash.MakeSeed()} }

func (l *last) of(name string) *atomic.Uint32 {
	return &l.places[maphash.String(l.seed, name)%uint64(len(l.places))]
}

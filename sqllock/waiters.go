package sqllock

import "github.com/holdfast-lock/holdfast/driver"

// The kinds of waiting requests: those that want a name alone, or may share it, or await a latch.
const (
	waitAlone uint8 = iota
	waitGroup
	waitLatch
)

func waitKind(mode driver.Mode) uint8 {
	if mode == driver.Exclusive {
		return waitAlone
	}
	return waitGroup
}

// waiting returns the requests that wait here, or are about to, by name, without those that got a
// token.
func (b *Server) waiting() map[string]Waiters {
	by := map[string]Waiters{}
	b.waiters.Pending(func(id, name string, kind uint8) {
		of := by[name]
		switch kind {
		case waitLatch:
			of.Latch = append(of.Latch, id)
		case waitGroup:
			of.Group = append(of.Group, id)
		default:
			of.Alone = append(of.Alone, id)
		}
		by[name] = of
	})
	return by
}

package sqllock

import (
	"bytes"
	"strconv"

	"github.com/holdfast-lock/holdfast/driver"
)

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

// A datagram has a line for each grant: request ID, space, token in decimal.

func appendLine(msg []byte, id string, token uint64) []byte {
	msg = append(msg, id...)
	msg = append(msg, ' ')
	msg = strconv.AppendUint(msg, token, 10)
	return append(msg, '\n')
}

// parseDatagram calls do for each valid line of msg and skips the others: a lost wake-up costs
// time, a wrong one could cost the lock.
func parseDatagram(msg []byte, do func(id string, token uint64)) {
	for line := range bytes.Lines(msg) {
		line, complete := bytes.CutSuffix(line, []byte("\n"))
		i := bytes.LastIndexByte(line, ' ')
		if !complete || i <= 0 || len(line)-i > 21 {
			continue
		}
		if token, err := strconv.ParseUint(string(line[i+1:]), 10, 64); err == nil {
			do(string(line[:i]), token)
		}
	}
}

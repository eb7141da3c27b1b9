package sqlite

import (
	"bytes"
	"strconv"
)

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

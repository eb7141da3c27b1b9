// Package judge reads what contenders for a lock have noted while they held it.
package judge

import (
	"fmt"
	"strings"
)

// Verdict is the summary of a contest.
type Verdict struct {
	Turns int // times that the lock changed sides
	Mixed int // times that a contender came in while another side was inside
	Most  int // the most contenders inside at once
}

// Read reads the log of a contest. It returns an error if two contenders that exclude each other were
// inside together, or a line has no sense. A line is "enter KIND ID …" or "leave KIND ID …", and an ID
// begins with the number of a process, whose side is in side. Contenders write a line inside the
// lock, so the order of the lines is the order of events, and needs no clock. Readers share the lock
// (read), and so do up to limit holders of permits (semaphore, permit). All others exclude everybody.
func Read(log string, side map[string]string, limit int) (Verdict, error) {
	var v Verdict
	inside := map[string]string{} // kind by ID
	sideOf := func(id string) string {
		process, _, _ := strings.Cut(id, ".")
		return side[process]
	}
	last, n := "", 0
	for line := range strings.Lines(log) {
		n++
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "enter" && f[0] != "leave" || sideOf(f[2]) == "" {
			return v, fmt.Errorf("line %d of the log is %q", n, line)
		}
		what, kind, id := f[0], f[1], f[2]
		bad := fmt.Errorf("line %d of the log is %q, and inside are %v", n, line, inside)
		if what == "leave" {
			if inside[id] != kind {
				return v, bad
			}
			delete(inside, id)
			continue
		}
		mixed := false
		for other, k := range inside {
			if k != kind || other == id || !shared(kind, len(inside), limit) {
				return v, bad
			}
			mixed = mixed || sideOf(other) != sideOf(id)
		}
		if mixed {
			v.Mixed++
		}
		inside[id] = kind
		v.Most = max(v.Most, len(inside))
		if last != "" && last != sideOf(id) {
			v.Turns++
		}
		last = sideOf(id)
	}
	if len(inside) > 0 {
		return v, fmt.Errorf("at the end of the log are inside: %v", inside)
	}
	return v, nil
}

// shared reports whether one more contender of this kind may come in to n of the same kind.
func shared(kind string, n, limit int) bool {
	switch kind {
	case "read":
		return true
	case "semaphore", "permit":
		return n < limit
	}
	return false
}

package history

import (
	"cmp"
	"slices"
)

// Class L3. Acquire with Wait promises a queue in order of arrival. An attempt with a reported
// place (Queued) is granted before each attempt that was requested later, so it has the smaller
// token.
//
// The same holds for an attempt that was cancelled or died without a grant, until a TTL before its
// end. After that it may have lost its place.
//
// An attempt does not count if it waited during a fault, or within a TTL after one, that may have
// cost it its place. Such a fault is a shared one, or one of its own client. Its client may not
// receive pushes, and a store may pass over a waiter that it cannot reach.
//
// An Unordered client has no place in the order: it passes nobody over, and nobody passes it over.
//
// O(n log n).

// waiting is an attempt in the queue.
type waiting struct {
	queued int64
	until  int64 // if it was never granted: the end of its place
	a      int32
}

func (c *checker) arrival() {
	v := c.verdicts[L3]
	queued, excused := 0, 0
	for name, attempts := range c.byName {
		var served, idle []waiting // granted attempts, and those never granted
		for _, a := range attempts {
			h := &c.attempts[a]
			if c.unordered[h.client] || !h.wait || h.queued == never || h.granted() && h.token == 0 || h.outcome == Refused {
				continue
			}
			queued++
			until := c.waitedUntil(h)
			switch {
			case c.disturbed(h, h.queued-int64(h.ttl), until):
				excused++
			case h.granted():
				served = append(served, waiting{h.queued, 0, a})
			default:
				if h.out != never || h.more().over != never {
					until -= int64(h.ttl)
				}
				idle = append(idle, waiting{h.queued, until, a})
			}
		}
		c.inversions(int32(name), served, idle)
	}
	v.fact(factQueued, queued)
	v.fact("of these, not judged because of a fault", excused)
}

func (c *checker) inversions(name int32, served, idle []waiting) {
	byQueued := func(x, y waiting) int { return cmp.Compare(x.queued, y.queued) }
	if !slices.IsSortedFunc(served, byQueued) {
		slices.SortStableFunc(served, byQueued)
	}
	slices.SortStableFunc(idle, byQueued)
	last, longest := int32(-1), waiting{a: -1, until: noProof} // with a place before this call
	for _, a := range c.byName[name] {
		h := &c.attempts[a]
		for ; len(served) > 0 && served[0].queued < h.call; served = served[1:] {
			if s := served[0].a; last < 0 || c.attempts[s].token > c.attempts[last].token {
				last = s
			}
		}
		for ; len(idle) > 0 && idle[0].queued < h.call; idle = idle[1:] {
			if idle[0].until > longest.until {
				longest = idle[0]
			}
		}
		if c.unordered[h.client] || !h.granted() || h.token == 0 {
			continue
		}
		if last >= 0 && c.attempts[last].token > h.token {
			c.violation(L3, c.names[name], []int32{last, a}, nil,
				"a later request (token %d) was granted before an earlier one in the queue (token %d)", h.token,
				c.attempts[last].token)
		} else if h.grantedAt < longest.until {
			c.violation(L3, c.names[name], []int32{longest.a, a}, nil,
				"a later request (token %d) was granted while an earlier one was in the queue", h.token)
		}
	}
}

// disturbed reports whether a fault that may affect h overlapped the time from begin to end.
func (c *checker) disturbed(h *attempt, begin, end int64) bool {
	if c.faultTimesOf == nil {
		c.faultTimesOf = map[int32]faultTimes{-1: newFaultTimes(c.sharedFaults())}
		for client, list := range c.own {
			c.faultTimesOf[int32(client)] = newFaultTimes(list)
		}
	}
	return c.faultTimesOf[-1].overlaps(begin, end) || c.faultTimesOf[h.client].overlaps(begin, end)
}

// faultTimes are faults in order of their begins; latest[i] is the latest end of the first i+1.
type faultTimes struct {
	faults []taken
	until  []int64
}

func newFaultTimes(faults []taken) faultTimes {
	t := faultTimes{faults, make([]int64, len(faults))}
	for i, f := range faults {
		t.until[i] = f.end
		if i > 0 {
			t.until[i] = max(f.end, t.until[i-1])
		}
	}
	return t
}

func (t faultTimes) overlaps(begin, end int64) bool {
	i, _ := slices.BinarySearchFunc(t.faults, end+1, func(f taken, t int64) int { return cmp.Compare(f.begin, t) })
	return i > 0 && t.until[i-1] >= begin
}

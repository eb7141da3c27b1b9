package history

import (
	"cmp"
	"slices"
)

// Class L3: where the line is promised to be served in order of arrival (Acquire with Wait), who
// had been told of its place before another asked is granted before that one: has the smaller token.
//
// The same holds for who gave up or died without a grant, up to a TTL before that: from then on it may
// not have stood in line any more.
//
// An attempt that waited during a fault which may have cost it its place, or within a TTL after it, does not
// count: a fault of something that all share, or of its own client. A client that can ask again cannot always be
// told again yet, and a store may pass over whom it cannot tell.
//
// O(n log n).

// waiting is somebody who stands in line.
type waiting struct {
	queued int64
	until  int64 // if it was never granted: until then it stood there
	a      int32
}

func (c *checker) arrival() {
	v := c.verdicts[L3]
	queued, excused := 0, 0
	for name, attempts := range c.byName {
		var served, idle []waiting // who was granted, and who never was
		for _, a := range attempts {
			h := &c.attempts[a]
			if !h.wait || h.queued == never || h.granted() && h.token == 0 || h.outcome == Refused {
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
	v.fact("waited in line", queued)
	v.fact("of these not judged because of a fault", excused)
}

func (c *checker) inversions(name int32, served, idle []waiting) {
	byQueued := func(x, y waiting) int { return cmp.Compare(x.queued, y.queued) }
	if !slices.IsSortedFunc(served, byQueued) {
		slices.SortStableFunc(served, byQueued)
	}
	slices.SortStableFunc(idle, byQueued)
	last, longest := int32(-1), waiting{a: -1, until: noProof} // of those who were in line before this call
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
		if !h.granted() || h.token == 0 {
			continue
		}
		if last >= 0 && c.attempts[last].token > h.token {
			c.violation(L3, c.names[name], []int32{last, a}, nil, "who asked later (token %d) was served before who stood in line (token %d)", h.token, c.attempts[last].token)
		} else if h.told < longest.until {
			c.violation(L3, c.names[name], []int32{longest.a, a}, nil, "who asked later (token %d) was served while another stood in line", h.token)
		}
	}
}

// disturbed reports whether a fault that may concern h overlapped the time from begin to end.
func (c *checker) disturbed(h *attempt, begin, end int64) bool {
	if c.troubles == nil {
		c.troubles = map[int32]trouble{-1: newTrouble(c.common())}
		for client, list := range c.own {
			c.troubles[int32(client)] = newTrouble(list)
		}
	}
	return c.troubles[-1].overlaps(begin, end) || c.troubles[h.client].overlaps(begin, end)
}

// trouble are faults in order of their beginnings, and of the first i+1 of them the latest end.
type trouble struct {
	faults []taken
	until  []int64
}

func newTrouble(faults []taken) trouble {
	t := trouble{faults, make([]int64, len(faults))}
	for i, f := range faults {
		t.until[i] = f.end
		if i > 0 {
			t.until[i] = max(f.end, t.until[i-1])
		}
	}
	return t
}

func (t trouble) overlaps(begin, end int64) bool {
	i, _ := slices.BinarySearchFunc(t.faults, end+1, func(f taken, t int64) int { return cmp.Compare(f.begin, t) })
	return i > 0 && t.until[i-1] >= begin
}

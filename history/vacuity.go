package history

import (
	"slices"
	"time"
)

// Class V: a run is conclusive only if it was hard. Every fault must have met a lock that was held
// and MinWaiting calls that waited; there must have been MinGrants grants, MinFaults faults, and
// MinRate grants a second while nothing was broken. What falls short is no violation: the run is
// inconclusive.
//
// O((n + faults) log n).

func (c *checker) vacuity() {
	v := c.verdicts[V]
	var holds, waits edges
	var grants []int64
	first := int64(never)
	for _, told := range c.byTold {
		for _, a := range told {
			grants = append(grants, c.attempts[a].told)
		}
	}
	for i := range c.attempts {
		h := &c.attempts[i]
		first = min(first, h.call)
		if len(c.faults) == 0 {
			continue
		}
		waits.add(h.call, c.waitedUntil(h))
		if h.granted() {
			holds.add(h.told, min(h.release, later(h.more().over, h.ttl), h.more().lost, c.end))
		}
	}
	if c.MinRate > 0 {
		slices.Sort(grants)
	}
	holds.sort()
	waits.sort()
	if len(grants) < c.MinGrants {
		v.doubt("%d grants; at least %d are needed", len(grants), c.MinGrants)
	}
	if len(c.faults) < c.MinFaults {
		v.doubt("%d faults; at least %d are needed", len(c.faults), c.MinFaults)
	}
	kinds := map[string]bool{}
	idle := 0
	for i := range c.faults {
		f := &c.faults[i]
		e := c.at(f.event)
		kinds[e.Text] = true
		if n := holds.during(f.begin, f.end); n == 0 {
			idle++
			v.doubt("fault %q (%s of %s) met no lock that was held", e.ID, e.Text, e.Target)
		} else if n := waits.during(f.begin, f.end); n < c.MinWaiting {
			idle++
			v.doubt("fault %q (%s of %s) met %d calls that waited; at least %d are needed", e.ID, e.Text, e.Target, n, c.MinWaiting)
		}
	}
	if rate, calm := c.rate(grants, first); c.MinRate > 0 && (calm == 0 || rate < c.MinRate) {
		v.doubt("%.1f grants a second in %v without a fault; at least %.1f are needed", rate, calm.Round(time.Millisecond), c.MinRate)
	}
	v.fact("faults", len(c.faults))
	v.fact("kinds of faults", len(kinds))
	v.fact("faults that met no load", idle)
}

// rate is how many grants a second there were in the time without a fault, and how long that was.
func (c *checker) rate(grants []int64, first int64) (float64, time.Duration) {
	faults := c.faults // in order
	calm, n := int64(0), 0
	piece := func(begin, end int64) {
		if end > begin {
			i, _ := slices.BinarySearch(grants, begin)
			j, _ := slices.BinarySearch(grants, end)
			calm, n = calm+end-begin, n+j-i
		}
	}
	at := min(first, c.end)
	for i := range faults {
		piece(at, faults[i].begin)
		at = max(at, faults[i].end)
	}
	piece(at, c.end+1)
	if calm == 0 {
		return 0, 0
	}
	return float64(n) / time.Duration(calm).Seconds(), time.Duration(calm)
}

// edges are the beginnings and ends of many intervals.
type edges struct{ begins, ends []int64 }

func (e *edges) add(begin, end int64) {
	if end >= begin {
		e.begins, e.ends = append(e.begins, begin), append(e.ends, end)
	}
}

func (e *edges) sort() {
	slices.Sort(e.begins)
	slices.Sort(e.ends)
}

// during is how many of them overlap the time from begin to end: those that began by then, less those
// that had ended before.
func (e *edges) during(begin, end int64) int {
	began, _ := slices.BinarySearch(e.begins, end+1)
	ended, _ := slices.BinarySearch(e.ends, begin)
	return began - ended
}

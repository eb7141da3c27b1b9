package history

import (
	"slices"
	"time"
)

// Class V: a run is conclusive only if it was hard. Every fault must have met a held lock and
// MinWaiting waiting calls. There must have been MinGrants grants, MinFaults faults, and MinRate
// grants a second without faults. A shortfall is no violation: the run is inconclusive.
//
// O((n + faults) log n).

func (c *checker) vacuity() {
	v := c.verdicts[V]
	var holds, waits edgeTimes
	var grants []int64
	first := int64(never)
	for _, inOrder := range c.byGranted {
		for _, a := range inOrder {
			grants = append(grants, c.attempts[a].grantedAt)
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
			holds.add(h.grantedAt, min(h.release, later(h.more().over, h.ttl), h.more().lost, c.end))
		}
	}
	if c.MinRate > 0 {
		slices.Sort(grants)
	}
	holds.sort()
	waits.sort()
	if len(grants) < c.MinGrants {
		v.doubt("%s; at least %d are needed", counted(len(grants), factGrants), c.MinGrants)
	}
	if len(c.faults) < c.MinFaults {
		v.doubt("%s; at least %d are needed", counted(len(c.faults), factFaults), c.MinFaults)
	}
	kinds := map[string]bool{}
	idle := 0
	for i := range c.faults {
		f := &c.faults[i]
		e := c.at(f.event)
		kinds[e.Text] = true
		if n := holds.during(f.begin, f.end); n == 0 {
			idle++
			v.doubt("fault %q (%s of %s) met no held lock", e.ID, e.Text, e.Target)
		} else if n := waits.during(f.begin, f.end); n < c.MinWaiting {
			idle++
			v.doubt("fault %q (%s of %s) met %s; at least %d are needed", e.ID, e.Text, e.Target,
				counted(n, "calls that waited"), c.MinWaiting)
		}
	}
	if rate, faultless := c.rate(grants, first); c.MinRate > 0 && (faultless == 0 || rate < c.MinRate) {
		v.doubt("%.1f grants a second in %v without a fault; at least %.1f are needed", rate,
			faultless.Round(time.Millisecond), c.MinRate)
	}
	v.fact(factFaults, len(c.faults))
	v.fact("kinds of faults", len(kinds))
	v.fact(factIdle, idle)
}

// rate returns the grants a second in the time without a fault, and the length of that time.
func (c *checker) rate(grants []int64, first int64) (float64, time.Duration) {
	faults := c.faults // in order
	faultless, n := int64(0), 0
	piece := func(begin, end int64) {
		if end > begin {
			i, _ := slices.BinarySearch(grants, begin)
			j, _ := slices.BinarySearch(grants, end)
			faultless, n = faultless+end-begin, n+j-i
		}
	}
	at := min(first, c.end)
	for i := range faults {
		piece(at, faults[i].begin)
		at = max(at, faults[i].end)
	}
	piece(at, c.end+1)
	if faultless == 0 {
		return 0, 0
	}
	return float64(n) / time.Duration(faultless).Seconds(), time.Duration(faultless)
}

// edgeTimes are the begins and ends of many intervals.
type edgeTimes struct{ begins, ends []int64 }

func (e *edgeTimes) add(begin, end int64) {
	if end >= begin {
		e.begins, e.ends = append(e.begins, begin), append(e.ends, end)
	}
}

func (e *edgeTimes) sort() {
	slices.Sort(e.begins)
	slices.Sort(e.ends)
}

// during returns the number of intervals that overlap the time from begin to end: those that began
// by then, less those that had ended before.
func (e *edgeTimes) during(begin, end int64) int {
	began, _ := slices.BinarySearch(e.begins, end+1)
	ended, _ := slices.BinarySearch(e.ends, begin)
	return began - ended
}

package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Classes L1 and L2: nobody waits for a lock that nobody can have.
//
// A name counts as taken while somebody may have it, or the store may still think so:
//
//   - a grant, from when it was told until its release was answered; if it was not released, until a TTL
//     after the last moment at which it may have been renewed: its client's end, its Lost, an
//     unanswered release;
//   - an attempt that was cancelled or not answered, or whose client died, from a TTL before that until a
//     TTL after it: it may have been granted unseen, though no longer, since a client asks at least
//     every TTL; one whose client was stopped before it was answered, from then until a TTL
//     after it went on;
//   - while something that all share is broken, and a TTL after it was healed; and a TTL after each
//     change of leader, since leases may start anew.
//
// Whoever waits while the name is not taken must get it within Slack; after a release a third of a TTL
// is added, which is when a wake-up that was lost is made up for. So after a death the bound is: the
// last fault that matters + TTL + Slack. Beyond it the violation is L1 if the name had come free by
// a death or loss, else L2.
//
// L2 also asks that every waiter was told something by the end, unless its client is no more, if the
// history says that the end was quiet (State, Final); that nobody waited longer than Patience; and that nobody
// was refused because the lock was not free while nobody can have had it, nor less than Slack before.
//
// O(n log n) for each name, and the faults of all for each name. Names that several may hold are looked at
// once more, see room.

// taken is a time during which a name may be held.
type taken struct {
	begin, end int64
	a          int32 // whose; -1: a fault's
	released   bool  // it ended by a release
}

func (c *checker) progress() {
	longest, most, open := int64(0), time.Duration(0), 0
	var list []taken
	for name, attempts := range c.byName {
		ttl := time.Duration(0)
		for _, a := range attempts {
			h := &c.attempts[a]
			ttl = max(ttl, h.ttl)
			if h.wait {
				longest = max(longest, c.waitedUntil(h)-h.call)
			}
		}
		list = list[:0]
		for _, f := range c.common() {
			f.end = later(f.end, ttl)
			list = append(list, f)
		}
		for _, a := range attempts {
			list = c.takenBy(list, a)
		}
		byBegin := func(x, y taken) int { return cmp.Compare(x.begin, y.begin) }
		if !slices.IsSortedFunc(list, byBegin) {
			slices.SortFunc(list, byBegin)
		}
		c.gaps(int32(name), attempts, list, ttl)
		c.room(int32(name), attempts, list, ttl)
		c.refusals(int32(name), attempts, list)
		open += c.unserved(int32(name), attempts)
		if c.deaths > 0 {
			most = max(most, c.recovery(int32(name)))
		}
	}
	c.verdicts[L1].fact("deaths", c.deaths)
	c.verdicts[L1].fact("ms at most from a holder's death to the next grant", int(most.Milliseconds()))
	c.verdicts[L2].fact("ms at most a call waited", int(time.Duration(longest).Milliseconds()))
	c.verdicts[L2].fact("calls open at the end", open)
}

func later(t int64, d time.Duration) int64 {
	if t > never-int64(d) {
		return never
	}
	return t + int64(d)
}

// common are the times in which something that all share was broken or changed its leader, without
// the TTL after them, in order of their beginnings.
func (c *checker) common() []taken {
	if c.shared == nil {
		c.shared = []taken{}
		for i := range c.faults {
			if f := &c.faults[i]; f.clients == nil {
				c.shared = append(c.shared, taken{begin: f.begin, end: f.end, a: -1})
			}
		}
		for _, t := range c.leaders {
			c.shared = append(c.shared, taken{begin: t, end: t, a: -1})
		}
		slices.SortStableFunc(c.shared, func(x, y taken) int { return cmp.Compare(x.begin, y.begin) })
	}
	return c.shared
}

// takenBy appends to list when attempt a may have the name.
func (c *checker) takenBy(list []taken, a int32) []taken {
	h := &c.attempts[a]
	m := h.more()
	if !h.granted() {
		if t := min(h.out, m.over); t != never && h.outcome != Refused {
			list = append(list, taken{max(h.call, t-int64(h.ttl)), later(t, h.ttl), a, false})
		}
	} else {
		t := taken{h.told, never, a, false}
		switch {
		case h.result == Accepted:
			t.end, t.released = h.released, true
		case h.result == Rejected && m.lost == never:
			t.end = h.released
		case m.lost != never: // a later Release may have been answered without asking the store
			t.end = min(m.over, m.lost)
			if h.released != never {
				t.end = max(t.end, h.released)
			}
			t.end = later(t.end, h.ttl)
		case h.released != never:
			t.end = later(h.released, h.ttl)
		case m.over != never:
			t.end = later(m.over, h.ttl)
		}
		list = append(list, t)
	}
	if own := c.own[h.client]; len(own) > 0 {
		until := c.waitedUntil(h)
		for _, f := range own {
			if f.begin <= until && f.end >= h.call {
				list = append(list, taken{max(f.begin, h.call), later(f.end, h.ttl), a, false})
			}
		}
	}
	return list
}

// waitedUntil is when h was told something, or its client was no more, or the end.
func (c *checker) waitedUntil(h *attempt) int64 {
	return min(h.told, h.out, h.more().over, c.end)
}

// gaps looks for times in which the name was not taken and somebody waited for it. list is in order of
// its beginnings.
func (c *checker) gaps(name int32, attempts []int32, list []taken, ttl time.Duration) {
	// Who waited, in order of their calls; and of the first i+1 of them, who waited longest into the future.
	waiters := make([]int32, 0, len(attempts))
	longest := make([]int32, 0, len(attempts))
	most := int64(noProof)
	for _, a := range attempts {
		if h := &c.attempts[a]; h.wait {
			waiters = append(waiters, a)
			if until := c.waitedUntil(h); until > most {
				most = until
				longest = append(longest, a)
			} else {
				longest = append(longest, longest[len(longest)-1])
			}
		}
	}
	if len(waiters) == 0 {
		return
	}
	check := func(last taken, begin, end int64) {
		allowed := c.Slack
		if last.a >= 0 && last.released {
			allowed += ttl / 3
		}
		if end-begin <= int64(allowed) {
			return
		}
		// Somebody who asked early enough to have waited for longer than is allowed within the gap.
		i, _ := slices.BinarySearchFunc(waiters, end-int64(allowed), func(a int32, t int64) int {
			return cmp.Compare(c.attempts[a].call, t)
		})
		if i == 0 {
			return
		}
		w := longest[i-1]
		from := max(begin, c.attempts[w].call)
		waited := time.Duration(min(end, c.waitedUntil(&c.attempts[w])) - from)
		if waited <= allowed {
			return
		}
		class, how, involved := L2, "it was free", []int32{w}
		if last.a >= 0 {
			involved = append(involved, last.a)
			if how = "it had been released"; !last.released {
				class, how = L1, "its holder was gone and its lease over"
			}
		}
		c.violation(class, c.names[name], involved, nil, "nobody got the lock for %v although %s and somebody waited", waited.Round(time.Millisecond), how)
	}
	// Until when the name is taken, as far as is known: by a grant, unseen, or for a fault.
	from := c.attempts[waiters[0]].call
	granted, other := taken{a: -1, end: from}, taken{a: -1, end: from}
	free := func() taken {
		if other.end > granted.end {
			return other
		}
		return granted
	}
	for _, t := range list {
		if last := free(); t.begin > last.end {
			check(last, last.end, t.begin)
		}
		switch told := t.a >= 0 && c.attempts[t.a].told == t.begin; {
		case told && c.attempts[t.a].mode == driver.Exclusive:
			granted = t // so those before it are over, whatever they could have been
		case told && t.end > granted.end:
			granted = t
		case !told && t.end > other.end:
			other = t
		}
	}
	if last := free(); last.end < c.end {
		check(last, last.end, c.end)
	}
}

// refusals looks for calls that were refused because the lock was not free while nobody can have had it,
// nor stood in line.
func (c *checker) refusals(name int32, attempts []int32, list []taken) {
	var refused []int32
	for _, a := range attempts {
		if h := &c.attempts[a]; h.outcome == Refused && h.free && !h.wait {
			refused = append(refused, a)
		}
	}
	if len(refused) == 0 {
		return
	}
	busy := slices.Clone(list) // and those who wait, and those whose grant was on its way
	for i := range busy {
		if !busy[i].released { // as for those who wait, the store may take a while to notice
			busy[i].end = later(busy[i].end, c.Slack)
		}
	}
	for _, a := range attempts {
		if h := &c.attempts[a]; h.wait || h.outcome != Refused {
			busy = append(busy, taken{h.call, c.waitedUntil(h), a, false})
		}
	}
	slices.SortFunc(busy, func(x, y taken) int { return cmp.Compare(x.begin, y.begin) })
	until := make([]int64, len(busy)) // the latest end of the first i+1
	for i, b := range busy {
		until[i] = b.end
		if i > 0 {
			until[i] = max(until[i], until[i-1])
		}
	}
	for _, a := range refused {
		h := &c.attempts[a]
		call, told := h.call, h.out
		i, _ := slices.BinarySearchFunc(busy, told+1, func(b taken, t int64) int { return cmp.Compare(b.begin, t) })
		if i == 0 || until[i-1] < call {
			c.violation(L2, c.names[name], []int32{a}, nil, "the lock was refused although nobody had it or waited for it")
		}
	}
}

// unserved looks for waiters who were told nothing, and counts calls that are open at the end.
func (c *checker) unserved(name int32, attempts []int32) (open int) {
	for _, a := range attempts {
		h := &c.attempts[a]
		if !h.granted() && h.out == never && h.more().over == never {
			open++
			if c.quiet {
				c.violation(L2, c.names[name], []int32{a}, nil, "the call was never told anything, and its client lived on")
			}
		}
		wait := time.Duration(c.waitedUntil(h) - h.call)
		if c.Patience > 0 && h.wait && wait > c.Patience && !c.disturbed(h, h.call, c.waitedUntil(h)) {
			c.violation(L2, c.names[name], []int32{a}, nil, "%s", fmt.Sprintf("a call waited for %v; at most %v is allowed", wait.Round(time.Millisecond), c.Patience))
		}
	}
	return open
}

// recovery is the longest time from the end of a client that held the name to the next grant that was told.
func (c *checker) recovery(name int32) (most time.Duration) {
	granted := c.byTold[name]
	for _, a := range granted {
		h := &c.attempts[a]
		over := h.more().over
		if over == never || h.release != never || h.more().lost != never {
			continue
		}
		i, _ := slices.BinarySearchFunc(granted, over, func(a int32, t int64) int { return cmp.Compare(c.attempts[a].told, t) })
		if i < len(granted) {
			most = max(most, time.Duration(c.attempts[granted[i]].told-over))
		}
	}
	return most
}

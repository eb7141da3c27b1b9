package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Classes L1 and L2: no attempt waits for a lock that no client can have.
//
// A name counts as taken while a client may have it, or the store may still think so:
//
//   - a grant, from its answer until its release was answered. Without a release, until a TTL after
//     the last moment at which it may have been renewed: its client's end, its Lost, an unanswered
//     release;
//   - an attempt that was cancelled or not answered, or whose client died, from a TTL before that
//     until a TTL after it. The store may have granted it meanwhile, but no longer than that, since
//     a client asks at least every TTL. One whose client was stopped before the answer: from the
//     stop until a TTL after its end;
//   - during a shared fault, and a TTL after it; and a TTL after each change of leader, since
//     leases may start anew.
//
// A waiter of a name that is not taken must get it within Slack. After a release a third of a TTL
// is added, when clients ask again after a lost push. So after a death the bound is: the last fault
// that matters + TTL + Slack. Beyond it the violation is L1 if the name had become free by a death
// or loss, else L2.
//
// L2 also requires that every waiter had an answer at the end, unless its client has ended, if the
// history ends without load (State, Final). No wait may be longer than Patience. No attempt may be
// refused as busy when no client can have had the lock, from Slack before on.
//
// O(n log n) for each name, and the shared faults for each name. room.go checks names with several
// holders further.

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
		for _, f := range c.sharedFaults() {
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
	c.verdicts[L1].fact(factDeaths, c.deaths)
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

// sharedFaults returns the times of shared faults and changes of leader, without the TTL after
// them, in order of their begins.
func (c *checker) sharedFaults() []taken {
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
		t := taken{h.grantedAt, never, a, false}
		switch {
		case h.result == Accepted:
			t.end, t.released = h.released, true
		case h.result == Rejected && m.lost == never:
			t.end = h.released
		// A later Release may have been answered without a request to the store.
		case m.lost != never:
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

// waitedUntil returns when h was answered, or its client ended, or the history.
func (c *checker) waitedUntil(h *attempt) int64 {
	return min(h.grantedAt, h.out, h.more().over, c.end)
}

// gaps looks for times in which the name was not taken and an attempt waited for it. list is in
// order of its begins.
func (c *checker) gaps(name int32, attempts []int32, list []taken, ttl time.Duration) {
	// The waiters, in order of their calls; and of the first i+1 of them, the one that waited
	// longest.
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
		// An attempt that has waited in the gap for longer than allowed.
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
				class, how = L1, "its holder had ended and its lease had expired"
			}
		}
		c.violation(class, c.names[name], involved, nil, "no attempt got the lock for %v although %s and an attempt waited",
			waited.Round(time.Millisecond), how)
	}
	// The latest known time at which the name is taken: by a grant, a possible grant, or a fault.
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
		switch isGrant := t.a >= 0 && c.attempts[t.a].grantedAt == t.begin; {
		case isGrant && c.attempts[t.a].mode == driver.Exclusive:
			granted = t // so those before it have ended, whatever they were
		case isGrant && t.end > granted.end:
			granted = t
		case !isGrant && t.end > other.end:
			other = t
		}
	}
	if last := free(); last.end < c.end {
		check(last, last.end, c.end)
	}
}

// refusals looks for calls that were refused as busy when no client can have had the lock, nor
// waited.
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
	busy := slices.Clone(list) // also waiting attempts, and grants on their way
	for i := range busy {
		if !busy[i].released { // as for waiters, the store may take a while to notice
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
		call, answered := h.call, h.out
		i, _ := slices.BinarySearchFunc(busy, answered+1, func(b taken, t int64) int { return cmp.Compare(b.begin, t) })
		if i == 0 || until[i-1] < call {
			c.violation(L2, c.names[name], []int32{a}, nil, "the lock was refused although no client had it or waited for it")
		}
	}
}

// unserved looks for waiters without an answer, and counts calls that are open at the end.
func (c *checker) unserved(name int32, attempts []int32) (open int) {
	for _, a := range attempts {
		h := &c.attempts[a]
		if !h.granted() && h.out == never && h.more().over == never {
			open++
			if c.hasEndState {
				c.violation(L2, c.names[name], []int32{a}, nil, "the call was never answered, and its client did not end")
			}
		}
		wait := time.Duration(c.waitedUntil(h) - h.call)
		if c.Patience > 0 && h.wait && wait > c.Patience && !c.disturbed(h, h.call, c.waitedUntil(h)) {
			c.violation(L2, c.names[name], []int32{a}, nil, "%s",
				fmt.Sprintf("a call waited for %v: at most %v is allowed", wait.Round(time.Millisecond), c.Patience))
		}
	}
	return open
}

// recovery returns the longest time from the end of a client that held the name to the next grant.
func (c *checker) recovery(name int32) (most time.Duration) {
	granted := c.byGranted[name]
	for _, a := range granted {
		h := &c.attempts[a]
		over := h.more().over
		if over == never || h.release != never || h.more().lost != never {
			continue
		}
		i, _ := slices.BinarySearchFunc(granted, over, func(a int32, t int64) int {
			return cmp.Compare(c.attempts[a].grantedAt, t)
		})
		if i < len(granted) {
			most = max(most, time.Duration(c.attempts[granted[i]].grantedAt-over))
		}
	}
	return most
}

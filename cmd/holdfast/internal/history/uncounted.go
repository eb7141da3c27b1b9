package history

import (
	"cmp"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
)

// Windows of a name with grants that have no token. Its grants are cut, in order of their answers, at
// moments that no operation can span:
//
//   - no later attempt had been requested, and all earlier grants have ended;
//   - or an exclusive grant was guaranteed at that moment, and so was every pending one at its own
//     answer. So the pending ones were granted later. The window after it begins with that grant.
//
// Nothing is lost by the second cut if the name has exclusive grants only. Let the history have an
// order that explains it. Before the cut come the operations of the earlier attempts, since the
// holder excludes them; after it come the end of its grant and the operations of the later ones.

// windowsWithoutTokens calls each for all windows of a name; false if one became too large.
func (c *checker) windowsWithoutTokens(name int32, each func(*window)) bool {
	list := c.byGranted[name]
	exclusive := !slices.ContainsFunc(list, func(a int32) bool {
		h := &c.attempts[a]
		return h.mode != driver.Exclusive || h.more().down != never
	})
	sure := func(h *attempt) bool {
		s := c.endSpan(h)
		return exclusive && c.guaranteedUntil(h) > h.grantedAt && s.low <= s.high // else no end of it is legal
	}
	// Of the grants from i on: the earliest call, and that of those without a guarantee.
	calls, vague := make([]int64, len(list)+1), make([]int64, len(list)+1)
	calls[len(list)], vague[len(list)] = never, never
	for i := len(list) - 1; i >= 0; i-- {
		h := &c.attempts[list[i]]
		calls[i], vague[i] = min(calls[i+1], h.call), vague[i+1]
		if !sure(h) {
			vague[i] = min(vague[i], h.call)
		}
	}
	from, holder, busy, highest := 0, int32(-1), int64(noProof), uint64(0)
	for i, a := range list {
		h := &c.attempts[a]
		busy = max(busy, h.grantedAt, c.endSpan(h).high)
		last := i+1 == len(list)
		idle := calls[i+1] > busy
		held := !last && sure(h) && vague[i+1] > h.grantedAt && c.attempts[list[i+1]].grantedAt > h.grantedAt
		if !last && !idle && !held {
			continue
		}
		w := &window{}
		if holder >= 0 {
			w.add(c, holder, carried)
		}
		highest = c.addRanked(w, list[from:i+1], held && !idle, highest)
		if len(w.ops) > maxWindow {
			return false
		}
		w.bound()
		each(w)
		if from, holder = i+1, -1; held && !idle {
			holder, busy = a, c.endSpan(h).high // the others have ended
		}
	}
	return true
}

// addRanked puts attempts into a window. Those with tokens must come in the order of their tokens,
// after the highest of earlier windows, and it returns the highest by now. If the last one holds the
// lock at the end of the window, its end belongs to the next.
func (c *checker) addRanked(w *window, list []int32, held bool, highest uint64) uint64 {
	var ranked []int32
	for _, a := range list {
		if c.attempts[a].token != 0 {
			ranked = append(ranked, a)
		}
	}
	slices.SortFunc(ranked, func(x, y int32) int { return cmp.Compare(c.attempts[x].token, c.attempts[y].token) })
	rank := map[int32]int{} // readers that share a token have one each
	for i, a := range ranked {
		rank[a] = i
	}
	for i, a := range list {
		seq := anywhere
		if token := c.attempts[a].token; token != 0 {
			if seq = rank[a]; token < highest {
				seq = nowhere
			}
		}
		w.add(c, a, int32(seq))
		if held && i+1 == len(list) {
			w.ops = w.ops[:len(w.ops)-1]
		}
	}
	if len(ranked) > 0 {
		highest = max(highest, c.attempts[ranked[len(ranked)-1]].token)
	}
	return highest
}

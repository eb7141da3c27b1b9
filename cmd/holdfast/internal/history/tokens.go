package history

import (
	"cmp"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
)

// Class S4: the tokens of a name are unique, except that readers of one client which wait together may
// share a grant and its token. Tokens grow in the order of its grants. The order of two grants is known
// if one was answered before the other was requested. It is also known for exclusive ones if both were
// guaranteed at their answers, for then the store granted one after the other.
//
// Readers that share a grant have all called before the first of them was answered. The store may have
// granted it to the first that called before the others did so. Until the last of them has released it, no
// writer gets the lock. So a writer that was answered before any of them called has a smaller token. A
// reader under another grant has one if it was answered before the first of them called.
//
// O(n log n): in order of time, with the highest token so far.

func (c *checker) tokens() {
	tokenless := 0
	for name := range c.byName {
		tokenless += c.unique(int32(name))
		c.growing(int32(name))
	}
	c.verdicts[S4].fact(factTokenless, tokenless)
}

// unique looks for tokens that were granted twice, and counts grants without one.
func (c *checker) unique(name int32) (tokenless int) {
	type minted struct {
		token uint64
		a     int32
	}
	list := make([]minted, 0, len(c.byGranted[name]))
	for _, a := range c.byGranted[name] {
		if h := &c.attempts[a]; h.token != 0 {
			list = append(list, minted{h.token, a})
		} else {
			tokenless++
		}
	}
	for _, a := range c.byName[name] {
		if h := &c.attempts[a]; !h.granted() && h.token != 0 {
			list = append(list, minted{h.token, a})
		}
	}
	byToken := func(x, y minted) int { return cmp.Compare(x.token, y.token) }
	if !slices.IsSortedFunc(list, byToken) {
		slices.SortStableFunc(list, byToken)
	}
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].token == list[0].token {
			n++
		}
		same := make([]int32, 0, n)
		for _, m := range list[:n] {
			same = append(same, m.a)
		}
		c.oneToken(name, same)
		list = list[n:]
	}
	return tokenless
}

// oneToken looks at the attempts with one token, of which the first was answered first.
func (c *checker) oneToken(name int32, same []int32) {
	if len(same) == 1 {
		return
	}
	first := &c.attempts[same[0]]
	together, all := span{first.call, first.grantedAt}, true
	for i, a := range same[1:] {
		if h := &c.attempts[a]; first.shares(h) {
			together.low = min(together.low, h.call)
			continue
		}
		all = false
		c.suspect(name)
		c.violation(S4, c.names[name], []int32{same[i], a}, nil, "token %d was granted twice", first.token)
	}
	if !all {
		return
	}
	if c.together == nil {
		c.together = map[int32]span{}
	}
	for _, a := range same {
		c.together[a] = together
	}
}

// shares reports whether x, which was answered first, may have its token from the same grant as h: they are
// readers of one client that have waited together.
func (x *attempt) shares(h *attempt) bool {
	return x.mode == driver.Shared && h.mode == driver.Shared && x.client == h.client && x.wait && h.wait &&
		h.call < x.grantedAt
}

func (c *checker) growing(name int32) {
	back := func(before, a int32) {
		c.suspect(name)
		c.violation(S4, c.names[name], []int32{before, a}, nil, "token %d was granted after token %d", c.attempts[a].token,
			c.attempts[before].token)
	}
	// Answered before the other was requested.
	inOrder, highest, highestWriter := c.byGranted[name], int32(-1), int32(-1)
	found := map[int32]bool{}
	for _, a := range c.byName[name] {
		h := &c.attempts[a]
		for ; len(inOrder) > 0 && c.attempts[inOrder[0]].grantedAt < h.call; inOrder = inOrder[1:] {
			g := &c.attempts[inOrder[0]]
			if highest < 0 || g.token > c.attempts[highest].token {
				highest = inOrder[0]
			}
			if g.mode != driver.Shared && (highestWriter < 0 || g.token > c.attempts[highestWriter].token) {
				highestWriter = inOrder[0]
			}
		}
		before := highest
		if s, ok := c.together[a]; ok && s.low < h.call { // another one has asked for the grant
			before = highestWriter
		}
		if h.granted() && h.token != 0 && before >= 0 && c.attempts[before].token > h.token {
			found[a] = true
			back(before, a)
		}
	}
	// Exclusive and guaranteed at their answers.
	highest = -1
	for _, a := range c.byGranted[name] {
		h := &c.attempts[a]
		if h.mode != driver.Exclusive || h.token == 0 || c.guaranteedUntil(h) <= h.grantedAt {
			continue
		}
		if highest >= 0 && c.attempts[highest].token > h.token && !found[a] {
			back(highest, a)
		}
		if highest < 0 || c.attempts[highest].token < h.token {
			highest = a
		}
	}
}

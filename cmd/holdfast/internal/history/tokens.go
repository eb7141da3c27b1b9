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
	for i := 1; i < len(list); i++ {
		if x, y := list[i-1], list[i]; x.token == y.token && !c.share(x.a, y.a) {
			c.suspect(name)
			c.violation(S4, c.names[name], []int32{x.a, y.a}, nil, "token %d was granted twice", x.token)
		}
	}
	return tokenless
}

// share reports whether two attempts may have one token: readers of one client that have waited together.
func (c *checker) share(a, b int32) bool {
	x, y := &c.attempts[a], &c.attempts[b]
	return x.mode == driver.Shared && y.mode == driver.Shared && x.client == y.client && x.wait && y.wait &&
		x.call < y.grantedAt && y.call < x.grantedAt
}

func (c *checker) growing(name int32) {
	back := func(before, a int32) {
		c.suspect(name)
		c.violation(S4, c.names[name], []int32{before, a}, nil, "token %d was granted after token %d", c.attempts[a].token,
			c.attempts[before].token)
	}
	// Answered before the other was requested.
	inOrder, highest := c.byGranted[name], int32(-1)
	found := map[int32]bool{}
	for _, a := range c.byName[name] {
		h := &c.attempts[a]
		for ; len(inOrder) > 0 && c.attempts[inOrder[0]].grantedAt < h.call; inOrder = inOrder[1:] {
			if highest < 0 || c.attempts[inOrder[0]].token > c.attempts[highest].token {
				highest = inOrder[0]
			}
		}
		if h.granted() && h.token != 0 && highest >= 0 && c.attempts[highest].token > h.token {
			found[a] = true
			back(highest, a)
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

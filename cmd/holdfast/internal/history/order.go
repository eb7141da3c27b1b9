package history

import (
	"cmp"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
)

// Linearizability of a name's grants and releases, decided without a search (classes S1 and S5).
//
// Tokens give the order in which the store granted. So the walk follows the grants in that order
// and lets each grant and each end happen as early as possible. A grant happens at or after its
// call, after the grant before it and after the ends that it needs. An end happens at or after the
// end of the lease's guarantee. An earlier time leaves more room for what follows. So if some order
// of all operations explains the clients' observations, the walk finds one. It fails at the first
// grant that can happen only after its client observed it, or end only after the client observed
// the end.
//
// O(n log n). The sweep over intervals detects less: it ignores that a grant with a late answer, or
// without a proved lease, must have fitted somewhere too.

// span is when an operation may have taken effect: from low to high.
type span struct{ low, high int64 }

// grantSpan and endSpan return the spans of the grant and of the end of a granted attempt. A grant that
// readers share was requested by the first that called, and made before the first of them was answered.
func (c *checker) grantSpan(a int32) span {
	if s, ok := c.together[a]; ok {
		return s
	}
	h := &c.attempts[a]
	return span{h.call, h.grantedAt}
}

func (c *checker) endSpan(h *attempt) span {
	s := span{c.guaranteedUntil(h), never}
	switch {
	case h.result == Accepted:
		s.high = h.released
	case h.result == Rejected && h.more().lost == never:
		// It had ended by itself, so not because of this Release.
		s.high = h.released
		s.low = min(h.more().over, h.more().broken)
		if h.ttl > 0 {
			s.low = min(s.low, h.proof+int64(h.ttl-c.margin(h.ttl)))
		}
	}
	return s
}

// downSpan returns when an exclusive grant became a shared one; ok is false if it never did.
func (c *checker) downSpan(h *attempt) (s span, sure, ok bool) {
	m := h.more()
	if m.down == never || h.mode != driver.Exclusive || m.downResult == Rejected {
		return s, false, false
	}
	if m.downResult == Accepted {
		return span{m.down, m.downed}, true, true
	}
	return span{m.down, never}, false, true
}

// ordered returns the granted attempts of a name in order of their tokens; false if tokens are
// missing or not unique. Readers that share a token are in any order.
func (c *checker) ordered(name int32) ([]int32, bool) {
	list := c.byGranted[name]
	byToken := func(x, y int32) int { return cmp.Compare(c.attempts[x].token, c.attempts[y].token) }
	if !slices.IsSortedFunc(list, byToken) {
		list = slices.Clone(list)
		slices.SortFunc(list, byToken)
	}
	for i, a := range list {
		token := c.attempts[a].token
		if _, shared := c.together[a]; token == 0 || i > 0 && token == c.attempts[list[i-1]].token && !shared {
			return list, false
		}
	}
	return list, true
}

func (c *checker) orders() {
	for name := range c.byName {
		list, ok := c.ordered(int32(name))
		if !ok || c.suspects[int32(name)] {
			continue // reported above, and the walk would only repeat it
		}
		if a, other := c.walk(list); a >= 0 {
			class := S1
			involved := []int32{a}
			if other >= 0 {
				involved = append(involved, other)
			}
			for _, i := range involved {
				if c.attempts[i].mode != driver.Exclusive {
					class = S5
				}
			}
			c.suspect(int32(name))
			c.violation(class, c.names[name], involved, nil,
				"no order of the grants and releases explains the clients' observations")
		}
	}
}

// walk returns the first attempt that does not fit and the one that excludes it (or -1), or -1.
func (c *checker) walk(list []int32) (bad, because int32) {
	type last struct {
		t int64
		a int32
	}
	later := func(l *last, t int64, a int32) {
		if t > l.t || l.a < 0 {
			*l = last{t, a}
		}
	}
	none := last{noProof, -1}
	grant, writers, locks, semas := none, none, none, none // the latest grant, and ends
	var free freed
	for _, a := range list {
		h := &c.attempts[a]
		granting, end := c.grantSpan(a), c.endSpan(h)
		at := last{granting.low, -1}
		need := []last{grant, locks, semas}
		switch h.mode {
		case driver.Shared:
			need = []last{grant, writers, semas}
		case driver.Permits:
			t, other := free.when(h.n, h.limit)
			need = []last{grant, locks, {t, other}}
		}
		for _, n := range need {
			if n.t > at.t {
				at = n
			}
		}
		if at.t > granting.high {
			return a, at.a
		}
		over := max(at.t, end.low)
		down, sure, ok := c.downSpan(h)
		if down.low = max(down.low, at.t); ok && sure {
			over = max(over, down.low) // the grant existed then
		}
		if over > end.high || ok && down.low > down.high {
			return a, -1
		}
		later(&grant, at.t, a)
		switch {
		case h.mode == driver.Permits:
			later(&semas, over, a)
			free.add(over, h.n, a)
		case ok:
			later(&writers, min(down.low, over), a)
			later(&locks, over, a)
		case h.mode == driver.Exclusive:
			later(&writers, over, a)
			later(&locks, over, a)
		default:
			later(&locks, over, a)
		}
	}
	return -1, -1
}

// freed knows when enough permits of earlier grants have returned. It keeps the earliest returned
// permits that suffice for the last request in a heap of their own. That set never shrinks, as long
// as the limit does not grow.
type freed struct {
	early []permit // a heap, the latest on top
	rest  []permit // a heap, the earliest on top
	sum   int64    // of early
	given int64    // of all
}

type permit struct {
	t int64
	n int32
	a int32
}

func latest(x, y *permit) bool   { return x.t > y.t }
func earliest(x, y *permit) bool { return x.t < y.t }

func (f *freed) add(t int64, n, a int32) {
	f.given += int64(n)
	if len(f.early) > 0 && t < f.early[0].t {
		push(&f.early, permit{t, n, a}, latest)
		f.sum += int64(n)
		return
	}
	push(&f.rest, permit{t, n, a}, earliest)
}

// when returns the time from which n more fit, and the attempt whose end that is.
func (f *freed) when(n, limit int32) (int64, int32) {
	need := f.given + int64(n) - int64(limit)
	for f.sum < need && len(f.rest) > 0 {
		e := pop(&f.rest, earliest)
		push(&f.early, e, latest)
		f.sum += int64(e.n)
	}
	for len(f.early) > 0 && f.sum-int64(f.early[0].n) >= need {
		e := pop(&f.early, latest)
		f.sum -= int64(e.n)
		push(&f.rest, e, earliest)
	}
	if need <= 0 || len(f.early) == 0 {
		return noProof, -1
	}
	return f.early[0].t, f.early[0].a
}

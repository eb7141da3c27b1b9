package history

import (
	"cmp"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
)

// Classes S1, S2 and S5 by intervals.
//
// A grant is guaranteed (G) from its answer until its Release, its Lost, its client's end, its
// Broken, or the end of the last proved lease less the margin. It is claimed (C) from its answer
// until its Release, its Lost (since when the library would have reported it), its client's end,
// its Broken. A stopped process claims only until its stop, and at each later Held. If none of
// these ends it, C lasts until the client's last event. C of an Observed client ends with the last
// Held. Intervals are half-open.
//
//   - S1: two G of exclusive grants of one name overlap.
//   - S5: the same with a shared grant on one side, or the permits of the G at one time exceed the
//     limit.
//   - S2: the C of two grants overlap so though their G do not; or a Held follows a Lost, or a
//     later grant that excludes it.
//
// Each is one sweep in order of time with a heap of grants that have not ended: O(n log n).

// guaranteedUntil returns the end of G.
func (c *checker) guaranteedUntil(h *attempt) int64 {
	end := h.release
	if m := h.rare; m != nil {
		end = min(end, m.lost, m.over, m.broken)
	}
	if h.ttl > 0 {
		end = min(end, h.proof+int64(h.ttl-c.margin(h.ttl)))
	}
	return end
}

// claimedUntil returns the end of C.
func (c *checker) claimedUntil(h *attempt) int64 {
	end := h.release
	if m := h.rare; m != nil {
		end = min(end, m.over, m.broken, m.stopped)
		if since := m.since; m.lost != never {
			if since == never { // noticed late: within the grace it is no claim
				since = max(m.lost-int64(c.Notice), min(m.lost, c.guaranteedUntil(h)))
			}
			end = min(end, max(since, h.lastHeld+1), m.lost) // no grace for a Held
		}
	}
	if c.observed[h.client] {
		end = min(end, max(h.grantedAt, h.lastHeld+1))
	}
	if end == never {
		end = c.lastSeen[h.client]
	}
	return end
}

func (c *checker) overlaps() {
	n := 0
	for name, granted := range c.byGranted {
		n += len(granted)
		c.sweep(granted, c.guaranteedUntil, nil, func(a int32, others []int32, mode Class) {
			c.markViolating(a)
			c.markViolating(others...)
			c.suspect(int32(name))
			what := "the lock was granted inside another's lease"
			if mode == S5 {
				what = "inside leases, more was granted than readers, writers or the limit allow"
			}
			c.violation(mode, c.names[name], append(others, a), nil, "%s", what)
		})
		c.sweep(granted, c.claimedUntil, c.assertions(int32(name), granted), func(a int32, others []int32, _ Class) {
			if c.violating[a] && slices.ContainsFunc(others, func(o int32) bool { return c.violating[o] }) {
				return // the store's fault, reported above
			}
			c.violation(S2, c.names[name], append(others, a), nil,
				"several clients claimed the lock, and not all had a guaranteed lease")
		})
	}
	c.verdicts[S1].fact(factGrants, n)
}

// assertions returns the Held events that count by themselves, in order of time. One that follows
// the attempt's own Lost contradicts it. One that follows a later grant that excludes it
// contradicts the store, however short that grant was.
func (c *checker) assertions(name int32, granted []int32) (points []assertion) {
	var later successors
	later.find(c, granted)
	for _, a := range granted {
		h := &c.attempts[a]
		reported := c.violating[a] || c.suspects[name] // the store's fault
		overtaken := func(t int64) bool {
			b := int32(-1)
			if !reported && t != noProof && t < h.release {
				b = later.before(c, a, t)
			}
			if b < 0 {
				return false
			}
			reported = true
			c.markViolating(a, b) // an overlap would report the same
			c.violation(S2, c.names[h.name], []int32{a, b}, nil,
				"the library reported the lease as valid after a later grant that excludes it")
			return true
		}
		overtaken(h.lastHeld)
		for _, t := range c.held[a] {
			if t > h.more().lost {
				c.violation(S2, c.names[h.name], []int32{a}, nil,
					"the library reported the lease as valid after it had reported it as lost")
			} else if !overtaken(t) && t < h.release {
				points = append(points, assertion{t, a})
			}
		}
	}
	slices.SortFunc(points, func(x, y assertion) int { return cmp.Compare(x.t, y.t) })
	return points
}

// successors finds later grants. Entry i of each list is the attempt with the highest token of the
// first i+1 grants, in order of their answers: of all grants, and of exclusive ones.
type successors struct {
	of        []int32
	exclusive []int32 // -1: none
}

func (s *successors) find(c *checker, granted []int32) {
	s.of, s.exclusive = slices.Clone(granted), slices.Clone(granted)
	highest := func(x, y int32) int32 {
		if x < 0 || y >= 0 && c.attempts[y].token > c.attempts[x].token {
			return y
		}
		return x
	}
	for i, a := range granted {
		if c.attempts[a].mode != driver.Exclusive {
			s.exclusive[i] = -1
		}
		if i > 0 {
			s.of[i], s.exclusive[i] = highest(s.of[i-1], a), highest(s.exclusive[i-1], s.exclusive[i])
		}
	}
}

// before returns a grant that was answered before t, excludes a, and has a larger token; -1: none.
// It ignores downgraded or broken grants, and permits.
func (s *successors) before(c *checker, a int32, t int64) int32 {
	h := &c.attempts[a]
	m := h.more()
	if h.token == 0 || h.mode == driver.Permits || m.down != never || m.broken != never {
		return -1
	}
	list := s.of
	if h.mode == driver.Shared {
		list = s.exclusive
	}
	inOrder := c.byGranted[h.name]
	i, _ := slices.BinarySearchFunc(inOrder, t, func(a int32, t int64) int {
		return cmp.Compare(c.attempts[a].grantedAt, t)
	})
	if i == 0 || list[i-1] < 0 || c.attempts[list[i-1]].token <= h.token {
		return -1
	}
	return list[i-1]
}

type assertion struct {
	t int64
	a int32
}

// sweep goes through grants in order of time, each lasting to until(it). It calls found for each
// grant that others exclude at its time, with the class if both were guaranteed. An assertion
// counts as a grant that ends at once.
func (c *checker) sweep(granted []int32, until func(*attempt) int64, points []assertion,
	found func(a int32, others []int32, mode Class)) {
	var s active
	for _, a := range granted {
		h := &c.attempts[a]
		t := h.grantedAt
		for len(points) > 0 && points[0].t <= t {
			p := points[0]
			points = points[1:]
			s.advance(p.t)
			if others := s.against(c, p.a, c.modeAt(p.a, p.t)); others != nil {
				found(p.a, others, "")
			}
		}
		end := until(h)
		if end <= t {
			continue
		}
		s.advance(t)
		if others := s.against(c, a, h.mode); others != nil {
			mode := S1
			for _, o := range append(others, a) {
				if c.attempts[o].mode != driver.Exclusive {
					mode = S5
				}
			}
			found(a, others, mode)
		}
		s.add(activeGrant{a: a, until: end, n: h.n, mode: h.mode}, h.more().down)
	}
	for _, p := range points {
		s.advance(p.t)
		if others := s.against(c, p.a, c.modeAt(p.a, p.t)); others != nil {
			found(p.a, others, "")
		}
	}
}

// active is the grants of one time: a heap by their ends.
type active struct {
	heap                       []activeGrant
	exclusive, shared, permits int
	used                       int64
}

type activeGrant struct {
	a     int32
	n     int32
	mode  driver.Mode
	until int64
	then  int64 // if it becomes shared at until: when that ends
}

func (s *active) count(e *activeGrant, by int) {
	switch e.mode {
	case driver.Exclusive:
		s.exclusive += by
	case driver.Shared:
		s.shared += by
	default:
		s.permits += by
		s.used += int64(e.n) * int64(by)
	}
}

func (s *active) add(e activeGrant, down int64) {
	if down < e.until {
		e.then, e.until = e.until, down
	}
	s.count(&e, 1)
	push(&s.heap, e, func(x, y *activeGrant) bool { return x.until < y.until })
}

func (s *active) advance(t int64) {
	for len(s.heap) > 0 && s.heap[0].until <= t {
		e := pop(&s.heap, func(x, y *activeGrant) bool { return x.until < y.until })
		s.count(&e, -1)
		if e.then > t {
			e.mode, e.until, e.then = driver.Shared, e.then, 0
			s.add(e, never)
		}
	}
}

// modeAt returns the mode of a at t: from its Downgrade on an attempt claims only the shared lock.
func (c *checker) modeAt(a int32, t int64) driver.Mode {
	if h := &c.attempts[a]; t < h.more().down {
		return h.mode
	}
	return driver.Shared
}

// against returns the active grants that exclude attempt a in this mode, or nil; of many, the eight
// that last longest.
func (s *active) against(c *checker, a int32, mode driver.Mode) (others []int32) {
	h := &c.attempts[a]
	switch mode {
	case driver.Exclusive:
		if len(s.heap) == 0 {
			return nil
		}
	case driver.Shared:
		if s.exclusive == 0 && s.permits == 0 {
			return nil
		}
	default:
		if s.exclusive == 0 && s.shared == 0 && s.used+int64(h.n) <= int64(h.limit) {
			return nil
		}
	}
	var list []activeGrant
	for _, e := range s.heap {
		if e.a != a && (mode != driver.Shared || e.mode != driver.Shared) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(x, y activeGrant) int { return cmp.Compare(y.until, x.until) })
	most := 1
	if mode == driver.Permits {
		most = 8
	}
	for _, e := range list[:min(len(list), most)] {
		others = append(others, e.a)
	}
	return others
}

// push and pop keep a slice as a binary heap; container/heap would box each entry.
func push[T any](h *[]T, e T, less func(x, y *T) bool) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !less(&s[i], &s[up]) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func pop[T any](h *[]T, less func(x, y *T) bool) T {
	s := *h
	top, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	*h = s
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(s) && less(&s[child], &s[least]) {
				least = child
			}
		}
		if least == i {
			return top
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

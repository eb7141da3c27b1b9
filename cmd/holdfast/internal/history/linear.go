package history

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/driver"
)

// Linearizability again, by search: Porcupine (classes S1 and S5). It shares no code with the walk
// in order.go and must have the same result.
//
// The operations of a name are the observed grants and their ends: a release, or an expiry at a
// time known from the last proof. A grant is legal only if its token is the next observed one.
// Without this successor rule many waiters make the search exponential. Refused calls are not
// operations: see progress.go. Neither are cancelled or unanswered attempts: they released what
// they got.
//
// A history is cut into windows by tokens. The order of the grants is known, so a window depends
// only on earlier grants that may still exist, and their ends. uncounted.go cuts a name with grants
// that have no token.

const maxWindow = 10_000 // operations

type opKind uint8

const (
	opGrant opKind = iota
	opEnd
	opDown
)

// op is an operation of attempt a.
type op struct {
	kind  opKind
	seq   int32 // the number of its grant in the window, or one of these:
	a     int32
	sure  bool // opDown: it did happen
	mode  driver.Mode
	n     int32
	limit int32
}

// Further values of op.seq.
const (
	carried  = -1 // the grant was before the window
	anywhere = -2 // the grant has no token, and may come at any time
	nowhere  = -3 // its token is below those of earlier windows
)

// lockState is the state of one name in a window. It is immutable.
type lockState struct {
	next  int32 // seq of the grant that must come next
	holds []heldGrant
}

type heldGrant struct {
	a    int32
	n    int32
	mode driver.Mode
}

func (s *lockState) fits(o *op) bool {
	used := int64(o.n)
	for _, h := range s.holds {
		used += int64(h.n)
		if (o.mode == driver.Permits) != (h.mode == driver.Permits) || o.mode == driver.Exclusive ||
			h.mode == driver.Exclusive {
			return false
		}
	}
	return o.mode != driver.Permits || used <= int64(o.limit)
}

func (s *lockState) find(a int32) int {
	return slices.IndexFunc(s.holds, func(h heldGrant) bool { return h.a == a })
}

// window is a part of a history that is checked by itself.
type window struct {
	init lockState
	ops  []porcupine.Operation
}

func (w *window) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &w.init },
		Step: func(state, input, _ any) (bool, any) {
			s, o := state.(*lockState), input.(*op)
			i := s.find(o.a)
			switch {
			case o.kind == opGrant:
				if o.seq != anywhere && o.seq != s.next || !s.fits(o) {
					return false, s
				}
				at, _ := slices.BinarySearchFunc(s.holds, o.a, func(h heldGrant, a int32) int { return cmp.Compare(h.a, a) })
				holds := make([]heldGrant, 0, len(s.holds)+1)
				holds = append(append(append(holds, s.holds[:at]...), heldGrant{o.a, o.n, o.mode}), s.holds[at:]...)
				next := s.next
				if o.seq != anywhere {
					next++
				}
				return true, &lockState{next, holds}
			case o.kind == opDown && !o.sure && i < 0:
				return true, s
			case i < 0:
				return false, s
			case o.kind == opEnd:
				return true, &lockState{s.next, slices.Delete(slices.Clone(s.holds), i, i+1)}
			default:
				holds := slices.Clone(s.holds)
				holds[i].mode = driver.Shared
				return true, &lockState{s.next, holds}
			}
		},
		Equal: func(a, b any) bool {
			x, y := a.(*lockState), b.(*lockState)
			return x.next == y.next && slices.Equal(x.holds, y.holds)
		},
		Hash: func(state any) uint64 {
			s := state.(*lockState)
			h := uint64(s.next) * 0x9e3779b97f4a7c15
			for _, x := range s.holds {
				h = (h ^ uint64(x.a)<<8 ^ uint64(x.mode)) * 0x100000001b3
			}
			return h
		},
	}
}

// add puts the operations of attempt a into the window; see op.seq.
func (w *window) add(c *checker, a, seq int32) {
	h := &c.attempts[a]
	put := func(kind opKind, s span, sure bool) {
		o := &op{kind: kind, sure: sure, a: a, seq: seq, mode: h.mode, n: h.n, limit: h.limit}
		w.ops = append(w.ops, porcupine.Operation{Input: o, Call: min(s.low, s.high), Return: s.high})
	}
	if seq != carried {
		put(opGrant, c.grantSpan(a), true)
	} else {
		i, _ := slices.BinarySearchFunc(w.init.holds, a, func(s heldGrant, a int32) int { return cmp.Compare(s.a, a) })
		w.init.holds = slices.Insert(w.init.holds, i, heldGrant{a, h.n, h.mode})
	}
	if s, sure, ok := c.downSpan(h); ok {
		put(opDown, s, sure)
	}
	s := c.endSpan(h)
	if s.low > s.high {
		// The store reported the end of a guaranteed lease: no time for this end is legal.
		s.high = c.grantSpan(a).low - 1
		s.low = s.high
	}
	put(opEnd, s, true)
}

// perWindow bounds the grants of a window, since each may have three operations.
const perWindow = maxWindow / 2

// windows cuts a name's grants, which are in order of their tokens, and calls each for the windows
// whose numbers are wanted.
func (c *checker) windows(list []int32, wanted func(i int) bool, each func(*window)) {
	high := c.latestEnds(list)
	var older []int32 // indices in list of grants that may still exist
	for i, from := 0, 0; from < len(list); i++ {
		to := min(len(list), from+perWindow)
		begin := c.grantSpan(list[from]).low
		older = slices.DeleteFunc(older, func(i int32) bool { return high[i] < begin })
		if wanted(i) {
			w := &window{ops: make([]porcupine.Operation, 0, 2*(to-from+len(older)))}
			for _, i := range older {
				w.add(c, list[i], carried)
			}
			for seq, a := range list[from:to] {
				w.add(c, a, int32(seq))
			}
			w.bound()
			each(w)
		}
		next := int64(never)
		if to < len(list) {
			next = c.grantSpan(list[to]).low
		}
		for i := from; i < to; i++ {
			if high[i] >= next {
				older = append(older, int32(i))
			}
		}
		from = to
	}
}

// latestEnds returns the latest possible end of each grant: before the next grant that excludes it
// was observed.
func (c *checker) latestEnds(list []int32) []int64 {
	high := make([]int64, len(list))
	// Of the next exclusive grant and the next of any mode.
	nextX, nextAny := int64(never), int64(never)
	for i := len(list) - 1; i >= 0; i-- {
		h := &c.attempts[list[i]]
		high[i] = c.endSpan(h).high
		switch {
		case h.mode == driver.Exclusive && h.more().down == never:
			high[i] = min(high[i], nextAny)
		case h.mode != driver.Permits:
			high[i] = min(high[i], nextX)
		}
		if h.mode == driver.Exclusive {
			nextX = min(nextX, h.grantedAt)
		}
		nextAny = min(nextAny, h.grantedAt)
	}
	return high
}

// bound ends operations without a latest time after all others.
func (w *window) bound() {
	last := int64(0)
	for _, o := range w.ops {
		last = max(last, o.Call)
		if o.Return != never {
			last = max(last, o.Return)
		}
	}
	for i := range w.ops {
		if w.ops[i].Return == never {
			w.ops[i].Return = last + 1
		}
		w.ops[i].Call = min(w.ops[i].Call, w.ops[i].Return)
	}
}

// linearizable checks some windows, spread evenly, and all of names without tokens.
func (c *checker) linearizable() {
	total := 0
	for name := range c.byName {
		total += (len(c.byGranted[name]) + perWindow - 1) / perWindow
	}
	number := 0
	wanted := func(int) bool { // selects Windows of all, spread evenly
		number++
		return c.Windows < 0 || c.Windows >= total || number*c.Windows/total > (number-1)*c.Windows/total
	}
	type result struct {
		name     int32
		ops      int
		attempts []int32
		result   porcupine.CheckResult
	}
	var mu sync.Mutex
	var results []result
	var workers sync.WaitGroup
	gate := make(chan struct{}, runtime.GOMAXPROCS(0)) // at most so many windows are in memory
	check := func(name int32) func(*window) {
		return func(w *window) {
			gate <- struct{}{}
			workers.Go(func() {
				defer func() { <-gate }()
				r := result{name, len(w.ops), w.few(), porcupine.CheckOperationsTimeout(w.model(), w.ops, c.Timeout)}
				mu.Lock()
				defer mu.Unlock()
				results = append(results, r)
			})
		}
	}
	for name := range c.byName {
		name := int32(name)
		if list, ordered := c.ordered(name); ordered {
			c.windows(list, wanted, check(name))
		} else if !c.suspects[name] && !c.windowsWithoutTokens(name, check(name)) {
			c.verdicts[S1].doubt("%q: not all grants have tokens, and more than %d operations cannot be told apart",
				c.names[name], maxWindow)
		}
	}
	workers.Wait()
	ops := 0
	for _, r := range results {
		ops += r.ops
		switch {
		case c.suspects[r.name]: // reported above
		case r.result == porcupine.Unknown:
			c.verdicts[S1].doubt("%q: Porcupine did not decide %d operations within %v", c.names[r.name], r.ops, c.Timeout)
		case r.result == porcupine.Illegal:
			c.suspect(r.name)
			c.violation(S1, c.names[r.name], r.attempts, nil,
				"no order of the grants and releases explains the clients' observations")
		}
	}
	c.verdicts[S1].fact("operations checked by Porcupine", ops)
}

// few returns the attempts of a window that is small enough to show.
func (w *window) few() (list []int32) {
	if len(w.ops) > 12 {
		return nil
	}
	for _, o := range w.ops {
		if a := o.Input.(*op).a; !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Class L2, further: no attempt waits for readers' places or permits that are free.
//
// A held name has room when all waiters would fit next to all who may hold it (see taken). That
// means only readers of both, or few enough permits. Then in any order of the queue one of them is
// next. It must get the lock within Slack and a third of a TTL, unless another grant comes
// meanwhile. While any waiter would not fit, it may be the next, and the check is silent.
//
// O(n log n) for each name, and the attempts of all for each violation.

// edge is a moment at which an attempt begins or ends to hold or to wait.
type edge struct {
	t    int64
	what edgeKind
	n    int32 // how many permits, negative when they return; without permits 1 or -1
	a    int32
}

type edgeKind uint8

const (
	grantEdge edgeKind = iota // a grant
	use                       // next to others
	useAll                    // of everything
	wait                      // for a part
	waitAll
)

// room checks the names that several clients may hold. list is as for gaps.
func (c *checker) room(name int32, attempts []int32, list []taken, ttl time.Duration) {
	limit := int32(0) // 0: readers and writers
	for _, a := range attempts {
		if h := &c.attempts[a]; h.mode == driver.Permits {
			if h.limit <= 0 {
				return // it was not recorded
			}
			if limit == 0 || h.limit < limit {
				limit = h.limit
			}
		}
	}
	edges := c.edges(attempts, list, limit > 0)
	if edges == nil {
		return
	}
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Compare(x.t, y.t) })
	allowed := int64(c.Slack + ttl/3)
	var used, usedAll, waitingAll int32
	waiting := map[int32]int{} // by the size of the request
	since := int64(never)      // since when there has been room for all waiters
	for i := 0; i < len(edges); {
		t := edges[i].t
		granted := false
		for ; i < len(edges) && edges[i].t == t; i++ {
			switch e := edges[i]; e.what {
			case grantEdge:
				granted = true
			case use:
				used += e.n
			case useAll:
				usedAll += e.n
			case waitAll:
				waitingAll += e.n
			case wait:
				if e.n > 0 {
					waiting[e.n]++
				} else if waiting[-e.n]--; waiting[-e.n] == 0 {
					delete(waiting, -e.n)
				}
			}
		}
		most := int32(0)
		for n := range waiting {
			most = max(most, n)
		}
		roomy := most > 0 && used > 0 && usedAll == 0 && waitingAll == 0 && (limit == 0 || used+most <= limit)
		if (granted || !roomy) && since != never {
			c.idle(name, attempts, since, t, allowed)
			since = never
		}
		if roomy && since == never {
			since = t
		}
	}
	if since != never {
		c.idle(name, attempts, since, c.end, allowed)
	}
}

// edges returns the edges of a name; nil if all its attempts are exclusive.
func (c *checker) edges(attempts []int32, list []taken, permits bool) (edges []edge) {
	if !permits && !slices.ContainsFunc(attempts, func(a int32) bool { return c.attempts[a].mode == driver.Shared }) {
		return nil
	}
	part := func(h *attempt) (n int32, all bool) {
		if h.mode == driver.Permits {
			return max(h.n, 1), false
		}
		return 1, permits || h.mode != driver.Shared
	}
	between := func(what edgeKind, n int32, begin, end int64, a int32) {
		if end = min(end, c.end); begin < end {
			edges = append(edges, edge{begin, what, n, a}, edge{end, what, -n, a})
		}
	}
	for _, t := range list {
		if t.a < 0 {
			between(useAll, 1, t.begin, t.end, t.a)
			continue
		}
		h := &c.attempts[t.a]
		n, all := part(h)
		m := h.more()
		switch down := m.downed != never && m.downResult == Accepted; {
		case !all:
			between(use, n, t.begin, t.end, t.a)
		case down && t.begin == h.grantedAt:
			between(useAll, 1, t.begin, min(m.downed, t.end), t.a)
			between(use, 1, min(m.downed, t.end), t.end, t.a)
		default:
			between(useAll, 1, t.begin, t.end, t.a)
		}
	}
	for _, a := range attempts {
		h := &c.attempts[a]
		if h.granted() {
			edges = append(edges, edge{h.grantedAt, grantEdge, 0, a})
		}
		if !h.wait {
			continue
		}
		if n, all := part(h); all {
			between(waitAll, 1, h.call, c.waitedUntil(h), a)
		} else {
			between(wait, n, h.call, c.waitedUntil(h), a)
		}
	}
	return edges
}

// idle reports an attempt that waited for longer than allowed from begin to end, if any.
func (c *checker) idle(name int32, attempts []int32, begin, end, allowed int64) {
	if end-begin <= allowed {
		return
	}
	for _, a := range attempts {
		h := &c.attempts[a]
		if !h.wait {
			continue
		}
		if waited := min(end, c.waitedUntil(h)) - max(begin, h.call); waited > allowed {
			c.violation(L2, c.names[name], []int32{a}, nil,
				"no attempt got the lock for %v although there was room for all waiters",
				time.Duration(waited).Round(time.Millisecond))
			return
		}
	}
}

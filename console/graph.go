package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// graph is who waits for whom. Its nodes are processes, as their clients describe themselves: the
// store does not know which waiter belongs to the task that has which grant.
//
// A process is free if each of its waits can end: if the holders are free, or enough of them for the
// permits that it wants, and the place before it in the queue can be granted. The others wait for
// each other, directly or not; those on a cycle are a knot. A process with many tasks may be in a
// cycle for a moment without a deadlock, since another task may release. So a knot counts as a
// deadlock only if it has stood for settled.
type graph struct {
	parties map[string]*party
	lines   []*line
	knots   []*knot // deadlocks, the oldest first
	forming []*knot // the same, not yet settled
	roots   []*party
}

// settled is how long a knot has to stand.
const settled = 10 * time.Second

// party is a process.
type party struct {
	key    string
	who    string // shown
	holds  []*grip
	waits  []*wish
	behind []*wish         // of other parties, for names that it holds
	known  map[*party]bool // the parties of behind
	stuck  bool            // it cannot go on, whatever the others do
	index  int             // of the search for cycles
	low    int
	onPath bool
}

// grip is a grant of a party.
type grip struct {
	name  string
	h     *holdfast.Holder
	party *party
	line  *line
	first bool // of its party in the line
}

// wish is a place in the queue.
type wish struct {
	name    string
	h       *holdfast.Holder
	party   *party
	line    *line
	need    int   // of a semaphore: how many permits of its holders
	before  *wish // in the queue, and must be granted first; nil: none
	blocked bool  // it cannot be granted, whatever the parties do that are not stuck
}

// knot is a set of parties that wait for each other.
type knot struct {
	parties []*party
	links   []link        // a cycle among them
	stands  time.Duration // how long at least
	victim  *grip         // the youngest grant in the cycle
}

// link says that from waits for a name that to holds, or for which to waits before it.
type link struct {
	from, to *party
	wish     *wish
	grip     *grip // nil: to is before it in the queue
}

// keyOf returns what tells processes apart. Programs that use the HTTP API share a process.
func keyOf(h *holdfast.Holder) string {
	return strings.Join([]string{h.Host, strconv.Itoa(h.PID), h.User, h.Labels[httpapi.LabelSession]}, "\x00")
}

func newGraph(records []holdfast.Record, now time.Time) *graph {
	g := &graph{parties: map[string]*party{}}
	for i := range records {
		g.add(&records[i])
	}
	for _, k := range cycles(g.reduce()) {
		k.describe(now)
		if k.stands >= settled {
			g.knots = append(g.knots, k)
		} else {
			g.forming = append(g.forming, k)
		}
	}
	older := func(a, b *knot) int { return cmp.Compare(b.stands, a.stands) }
	slices.SortFunc(g.knots, older)
	slices.SortFunc(g.forming, older)
	for _, p := range g.parties {
		if len(p.waits) == 0 && len(p.behind) > 0 {
			g.roots = append(g.roots, p)
		}
	}
	slices.SortFunc(g.roots, func(a, b *party) int {
		return cmp.Or(cmp.Compare(len(b.known), len(a.known)), cmp.Compare(a.key, b.key))
	})
	return g
}

func (g *graph) party(h *holdfast.Holder) *party {
	k := keyOf(h)
	p := g.parties[k]
	if p == nil {
		p = &party{key: k, who: who(h), known: map[*party]bool{}}
		g.parties[k] = p
	}
	return p
}

// add adds what a record says. Only names with waiters matter.
func (g *graph) add(r *holdfast.Record) {
	if len(r.Waiters) == 0 {
		return
	}
	l := newLine(r.Kind == "semaphore")
	g.lines = append(g.lines, l)
	held := 0
	for i := range r.Holders {
		h := &r.Holders[i]
		held += h.Permits
		if h.Kept {
			continue // it ends by itself
		}
		l.addGrip(&grip{name: r.Name, h: h, party: g.party(h), line: l})
	}
	var before *wish
	for i := range r.Waiters {
		h := &r.Waiters[i]
		w := &wish{name: r.Name, h: h, party: g.party(h), line: l, need: h.Permits - (r.Limit - held), blocked: true}
		// The queue is strict. Readers next to each other are let in together.
		if i > 0 && h.Shared && r.Waiters[i-1].Shared {
			w.before = before.before
		} else {
			w.before = before
		}
		before = w
		l.addWish(w)
	}
}

// next returns the links from p to other stuck parties.
func (p *party) next() (all []link) {
	for _, w := range p.waits {
		for _, x := range w.line.first {
			if x.party != p && x.party.stuck {
				all = append(all, link{p, x.party, w, x})
			}
		}
		if b := w.before; b != nil && b.party != p && b.party.stuck && b.blocked {
			all = append(all, link{p, b.party, w, nil})
		}
	}
	return all
}

// cycles returns the sets of stuck parties that reach each other.
func cycles(order []*party) (knots []*knot) {
	slices.SortFunc(order, func(a, b *party) int { return cmp.Compare(a.key, b.key) })
	// Tarjan's search, with a stack of its own: a chain of waits may be long.
	type frame struct {
		p     *party
		links []link
		i     int
	}
	n, path := 0, []*party(nil)
	enter := func(p *party) frame {
		n++
		p.index, p.low, p.onPath = n, n, true
		path = append(path, p)
		return frame{p: p, links: p.next()}
	}
	for _, start := range order {
		if start.index != 0 {
			continue
		}
		calls := []frame{enter(start)}
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			if f.i < len(f.links) {
				q := f.links[f.i].to
				f.i++
				if q.index == 0 {
					calls = append(calls, enter(q))
				} else if q.onPath {
					f.p.low = min(f.p.low, q.index)
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].p
				up.low = min(up.low, f.p.low)
			}
			if f.p.low != f.p.index {
				continue
			}
			i := slices.Index(path, f.p)
			set := slices.Clone(path[i:])
			path = path[:i]
			for _, p := range set {
				p.onPath = false
			}
			if len(set) > 1 {
				knots = append(knots, newKnot(set))
			}
		}
	}
	return knots
}

// newKnot finds a shortest cycle through the first party of a set.
func newKnot(set []*party) *knot {
	slices.SortFunc(set, func(a, b *party) int { return cmp.Compare(a.key, b.key) })
	k := &knot{parties: set}
	member := make(map[*party]bool, len(set))
	for _, p := range set {
		member[p] = true
	}
	from := map[*party]link{}
	queue := []*party{set[0]}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for _, l := range p.next() {
			if !member[l.to] {
				continue
			}
			if _, known := from[l.to]; known {
				continue
			}
			from[l.to] = l
			if l.to == set[0] {
				for at := set[0]; len(k.links) == 0 || at != set[0]; at = from[at].from {
					k.links = append(k.links, from[at])
				}
				slices.Reverse(k.links)
				return k
			}
			queue = append(queue, l.to)
		}
	}
	return k
}

// describe finds how long the knot has stood, and its youngest grant.
func (k *knot) describe(now time.Time) {
	k.stands = 1<<63 - 1
	for _, l := range k.links {
		k.stands = min(k.stands, now.Sub(l.wish.h.Since))
		if l.grip == nil {
			continue
		}
		k.stands = min(k.stands, now.Sub(l.grip.h.Since))
		if k.victim == nil || l.grip.h.Since.After(k.victim.h.Since) {
			k.victim = l.grip
		}
	}
}

// sentences say what the knot is, in the order of the cycle.
func (k *knot) sentences() (list []string) {
	for _, l := range k.links {
		how := " has"
		if l.grip == nil {
			how = " waits for before it"
		}
		list = append(list, fmt.Sprintf("%s waits for %s, which %s%s.", l.from.who, shown(l.wish.name), l.to.who, how))
	}
	return list
}

// advice says who must let go.
func (k *knot) advice() string {
	if k.victim == nil {
		return "One of them must give up its place in the queue."
	}
	return fmt.Sprintf("To end it, one of them must let go. The youngest grant is %s, which %s has had for %s.",
		shown(k.victim.name), k.victim.party.who, short(time.Since(k.victim.h.Since)))
}

package sqllock

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// How many connections of the pool a Server uses at once, whatever the pool allows: for requests,
// which come in large numbers, and for everything else, which must not wait for requests. A server
// has some hundred connections for all clients. One name gets only a few of these: all requests for
// a name need the same row, and may wait there for a transaction that has locked it.
const (
	requestsAtOnce = 32
	othersAtOnce   = 16
	nameAtOnce     = 4
)

// stuckFor is how long a gate remembers that an unused name is stuck.
const stuckFor = 10 * time.Second

// gate limits how many callers run at once. Each name has a lane. There are three kinds of places,
// and the lanes of each kind take turns:
//
//   - The first caller of a name may use any of the room places.
//   - Further callers of that name, up to nameAtOnce, enter only while half of the places are free.
//     So a few names never fill the gate.
//   - A name is stuck after a caller has waited for its row in vain. One caller at a time enters,
//     to one of the stuckRoom places. So names with locked rows do not keep others out, however
//     many they are.
type gate struct {
	room, stuckRoom int

	mu          sync.Mutex
	busy, stuck int // callers inside, in either kind of place
	lanes       map[string]*lane

	first, more, again list.List // lanes with waiting callers, by the kind of place that they may get
	unused             sync.Pool // of lanes
}

// lane is the state of one name that callers want. The gate's mutex guards it.
type lane struct {
	name    string
	inside  int
	stuck   bool
	waiting list.List // of *pass
	in      *list.List
	place   *list.Element // the lane's element in in
}

// pass is one caller's stay in a gate.
type pass struct {
	g       *gate
	lane    *lane
	entered chan struct{} // closed when admitted; nil: admitted at once
	waits   *list.Element // element of lane.waiting; nil: not waiting
	inside  bool
	left    bool
	stuck   bool // uses a place for stuck names
	brief   bool // more than half of those are in use, so statements must not wait long for a row
	reached bool // the last attempt did what it was for
}

type passKey struct{}

// passOf returns the pass in ctx; nil: there is none, as for renewals.
func passOf(ctx context.Context) *pass {
	p, _ := ctx.Value(passKey{}).(*pass)
	return p
}

// brief reports whether statements under ctx must not wait long for a row.
func brief(ctx context.Context) bool {
	p := passOf(ctx)
	return p != nil && p.brief
}

// newGate returns a gate with atOnce places, a quarter of them for stuck names.
func newGate(atOnce int) *gate {
	g := &gate{room: atOnce - atOnce/4, stuckRoom: atOnce / 4, lanes: map[string]*lane{}}
	g.unused.New = func() any { return &lane{} }
	return g
}

// enter waits for a place. The caller must not enter again before leave. The name "" stands for
// several names.
func (g *gate) enter(ctx context.Context, name string) (*pass, error) {
	g.mu.Lock()
	l := g.lanes[name]
	if l == nil {
		l = g.unused.Get().(*lane)
		if l.name = name; name != "" {
			g.lanes[name] = l
		}
	}
	p := &pass{g: g, lane: l}
	g.join(p)
	g.mu.Unlock()
	return p, p.await(ctx)
}

// join admits p, or puts p in the waiting list. The caller has g.mu, and calls await without it.
func (g *gate) join(p *pass) {
	l := p.lane
	if p.entered = nil; l.waiting.Len() == 0 && g.fits(l, g.kind(l)) {
		g.let(p)
		return
	}
	p.entered = make(chan struct{})
	p.waits = l.waiting.PushBack(p)
	g.settle(l)
}

// kind returns the list of lanes that want the same kind of place as l; nil: l may have none.
func (g *gate) kind(l *lane) *list.List {
	switch {
	case l.stuck && l.inside > 0, l.inside >= nameAtOnce:
		return nil
	case l.stuck:
		return &g.again
	case l.inside > 0:
		return &g.more
	}
	return &g.first
}

// fits reports whether a place of that kind is free.
func (g *gate) fits(l *lane, kind *list.List) bool {
	switch kind {
	case &g.first:
		return g.busy < g.room
	case &g.more:
		return g.busy < g.room/2
	case &g.again:
		return g.stuck < g.stuckRoom
	}
	return false
}

func (g *gate) let(p *pass) {
	p.inside, p.stuck, p.brief, p.reached = true, p.lane.stuck, false, false
	p.lane.inside++
	if !p.stuck {
		g.busy++
		return
	}
	g.stuck++
	p.brief = g.stuck > g.stuckRoom/2
}

// settle puts l in the list where it belongs, if any, and admits every caller that fits. The caller
// has g.mu.
func (g *gate) settle(l *lane) {
	g.relist(l)
	for _, kind := range []*list.List{&g.first, &g.more, &g.again} {
		for kind.Len() > 0 {
			next := kind.Front().Value.(*lane)
			if !g.fits(next, kind) {
				break
			}
			p := next.waiting.Remove(next.waiting.Front()).(*pass)
			p.waits = nil
			g.let(p)
			close(p.entered)
			kind.Remove(next.place) // other lanes have their turn now
			next.in, next.place = nil, nil
			g.relist(next)
		}
	}
}

func (g *gate) relist(l *lane) {
	kind := g.kind(l)
	if l.waiting.Len() == 0 {
		kind = nil
	}
	if kind == l.in {
		return
	}
	if l.in != nil {
		l.in.Remove(l.place)
	}
	if l.in, l.place = kind, nil; kind != nil {
		l.place = kind.PushBack(l)
	}
}

// await waits until p is admitted. If ctx ends first, p leaves.
func (p *pass) await(ctx context.Context) error {
	if p.entered == nil {
		return nil
	}
	select {
	case <-p.entered:
		return nil
	case <-ctx.Done():
		p.leave()
		return fmt.Errorf("%w: too many requests at once, or too many for this name: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// note records the result of an attempt. waited: it waited for a row in vain. reached: it did what
// it was for. p may be nil.
func (p *pass) note(waited, reached bool) {
	if p == nil {
		return
	}
	p.reached = reached
	if g, l := p.g, p.lane; waited && l.name != "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		l.stuck = true
		g.settle(l)
	}
}

// again waits until another attempt may be made. If the name is stuck, p must get a new place. p
// may be nil.
func (p *pass) again(ctx context.Context) error {
	if p == nil {
		return nil
	}
	g, l := p.g, p.lane
	g.mu.Lock()
	if !l.stuck {
		g.mu.Unlock()
		return nil
	}
	g.out(p)
	g.settle(l)
	g.join(p)
	g.mu.Unlock()
	return p.await(ctx)
}

// out removes p from its place or from the waiting list.
func (g *gate) out(p *pass) {
	switch {
	case p.waits != nil:
		p.lane.waiting.Remove(p.waits)
		p.waits = nil
		return
	case !p.inside:
		return
	case p.stuck:
		g.stuck--
	default:
		g.busy--
	}
	p.inside = false
	p.lane.inside--
}

// leave ends p. It does nothing if p has ended.
func (p *pass) leave() {
	g, l := p.g, p.lane
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.left {
		return
	}
	if p.left = true; p.reached {
		l.stuck = false
	}
	g.out(p)
	g.settle(l)
	if l.inside > 0 || l.waiting.Len() > 0 {
		return
	}
	if l.stuck {
		time.AfterFunc(stuckFor, func() { g.forget(l) })
		return
	}
	g.drop(l)
}

// forget drops a lane that was stuck, unless it is in use.
func (g *gate) forget(l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lanes[l.name] == l && l.inside == 0 && l.waiting.Len() == 0 {
		g.drop(l)
	}
}

// drop removes an unused lane.
func (g *gate) drop(l *lane) {
	if l.name != "" {
		delete(g.lanes, l.name)
	}
	l.stuck = false
	g.unused.Put(l)
}

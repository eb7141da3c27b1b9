package sqllock

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// How many connections of the pool a Server uses at once, whatever the pool allows: for requests, which come in crowds,
// and for everything else, which must not wait for those. A server has some hundred for everybody. A name has a few of
// these at most: all who ask for a name want the same row, and may wait there for a transaction that has locked it.
const (
	requestsAtOnce = 32
	othersAtOnce   = 16
	nameAtOnce     = 4
)

// stuckFor is how long a gate remembers a name as stuck that nobody asks for.
const stuckFor = 10 * time.Second

// gate lets some through at a time, in lanes, one for each name. It has three rooms, and in each the lanes take turns:
//
//   - The first of a name finds place in all of room.
//   - Others of that name find place while half of it is empty, up to nameAtOnce, so that a few names never fill it.
//   - A name is stuck when somebody has waited for its row in vain. One of it at a time is let in, in a room
//     for such names. So the names whose rows somebody has locked keep nobody else out, however many they are.
type gate struct {
	room, stuckRoom int

	mu          sync.Mutex
	busy, stuck int // who is in either room
	lanes       map[string]*lane

	first, more, again list.List // lanes in which somebody waits, by the kind of place that the lane may have
	unused             sync.Pool // of lanes
}

// lane is what a gate has of a name that somebody asks for. The gate's mutex guards it.
type lane struct {
	name    string
	inside  int
	stuck   bool
	waiting list.List // of *pass
	in      *list.List
	place   *list.Element // in in
}

// pass is one stay in a gate.
type pass struct {
	g       *gate
	lane    *lane
	entered chan struct{} // closed when it is let in; nil: at once
	waits   *list.Element // in lane.waiting; nil: it does not wait
	inside  bool
	left    bool
	stuck   bool // it is in the room for stuck names
	brief   bool // and that room is half full, so its statements are not to wait for a row for long
	reached bool // its last attempt found the row, or the server, at work
}

type passKey struct{}

// passOf is the pass of who works under ctx; nil: there is none, as for renewals.
func passOf(ctx context.Context) *pass {
	p, _ := ctx.Value(passKey{}).(*pass)
	return p
}

// brief reports whether statements under ctx are not to wait for a row for long.
func brief(ctx context.Context) bool {
	p := passOf(ctx)
	return p != nil && p.brief
}

// newGate makes a gate for atOnce, a quarter of which is for stuck names.
func newGate(atOnce int) *gate {
	g := &gate{room: atOnce - atOnce/4, stuckRoom: atOnce / 4, lanes: map[string]*lane{}}
	g.unused.New = func() any { return &lane{} }
	return g
}

// enter returns when there is room; what is done until leave must not enter again. The name "" stands for several.
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

// join lets p in, or has it wait. The caller has g.mu, and calls await without it.
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

// kind is the list for lanes that may have the same kind of place as l; nil: l may have none.
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

// fits reports whether there is a place of that kind.
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

// settle puts l into the list in which it belongs, or none, and lets in whoever fits. The caller has g.mu.
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
			kind.Remove(next.place) // others have their turn now
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

// await returns when p has been let in. If ctx ends before, p has left.
func (p *pass) await(ctx context.Context) error {
	if p.entered == nil {
		return nil
	}
	select {
	case <-p.entered:
		return nil
	case <-ctx.Done():
		p.leave()
		return fmt.Errorf("%w: too much else was asked at once, or for this name: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// note keeps what an attempt has come to: waited says that it waited for a row in vain, reached that it did what it
// was for. p may be nil.
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

// again returns when another attempt may be made: p has to find place anew if its name is stuck. p may be nil.
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

// out takes p out of where it is.
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

// leave ends p, if it has not ended.
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

// forget forgets a lane that was stuck, unless somebody uses it.
func (g *gate) forget(l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lanes[l.name] == l && l.inside == 0 && l.waiting.Len() == 0 {
		g.drop(l)
	}
}

// drop forgets a lane that nobody uses.
func (g *gate) drop(l *lane) {
	if l.name != "" {
		delete(g.lanes, l.name)
	}
	l.stuck = false
	g.unused.Put(l)
}

package sqllock

import (
	"context"
	"fmt"
	"sync"

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

// gate lets some through at a time, and of these some for each name, in the order in which they come.
type gate struct {
	room chan struct{}

	mu    sync.Mutex
	lanes map[string]*lane
}

// lane is what a gate has of a name that somebody asks for.
type lane struct {
	room  chan struct{}
	users int // who is in it, or waits for that
}

var unusedLanes = sync.Pool{New: func() any { return &lane{room: make(chan struct{}, nameAtOnce)} }}

func newGate(room int) *gate {
	return &gate{room: make(chan struct{}, room), lanes: map[string]*lane{}}
}

// enter returns when there is room; what is done until leave must not enter again. The name "" stands for several. Room
// for the name comes first, so that those who wait for it keep nobody else out.
func (g *gate) enter(ctx context.Context, name string) error {
	if name != "" {
		g.mu.Lock()
		l := g.lanes[name]
		if l == nil {
			l = unusedLanes.Get().(*lane)
			g.lanes[name] = l
		}
		l.users++
		g.mu.Unlock()
		if err := enter(ctx, l.room, "for this name"); err != nil {
			g.forget(name)
			return err
		}
	}
	if err := enter(ctx, g.room, "at once"); err != nil {
		g.leaveLane(name)
		return err
	}
	return nil
}

func enter(ctx context.Context, room chan struct{}, what string) error {
	select {
	case room <- struct{}{}:
		return nil
	default:
	}
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: too much else was asked %s: %w", driver.ErrUnavailable, what, ctx.Err())
	}
}

func (g *gate) leave(name string) {
	<-g.room
	g.leaveLane(name)
}

func (g *gate) leaveLane(name string) {
	if name == "" {
		return
	}
	g.mu.Lock()
	l := g.lanes[name]
	g.mu.Unlock()
	<-l.room
	g.forget(name)
}

// forget is for who is not in the lane of name any more.
func (g *gate) forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lanes[name]
	if l.users--; l.users == 0 {
		delete(g.lanes, name)
		unusedLanes.Put(l)
	}
}

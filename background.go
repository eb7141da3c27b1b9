package holdfast

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// gate counts the work under way that Close waits for. It costs a call two atomic additions.
type gate struct {
	n    atomic.Int64  // of calls inside; and gateClosed, once it is closed
	idle chan struct{} // closed when the gate is closed and nobody is inside
	once sync.Once
}

const gateClosed = 1 << 62

// enter counts a call in, unless the gate is closed.
func (g *gate) enter() bool {
	if g.n.Add(1) > gateClosed {
		g.leave()
		return false
	}
	return true
}

// add counts work in whatever the gate's state: for those who are inside, and for work that
// does no harm after Close.
func (g *gate) add() { g.n.Add(1) }

func (g *gate) leave() {
	if g.n.Add(-1) == gateClosed {
		g.once.Do(func() { close(g.idle) })
	}
}

func (g *gate) close() {
	if g.n.Add(gateClosed) == gateClosed {
		g.once.Do(func() { close(g.idle) })
	}
}

// A chore is an exchange that has to reach the store although nobody waits for its answer:
// the end of a request or of a grant. It is repeated until the store has answered, or has
// forgotten by itself what it is about: a TTL after the last sign of life.
//
// An answered chore is repeated if an exchange that it takes back was not answered. Such an
// exchange may still be under way on another connection, and the store then sees it after
// the chore. Nothing bounds its arrival but the connection's own limits. The last repeat
// comes when every exchange has been given up that was sent before the chore. Requests that
// arrive later still hold a name for a TTL, and nobody relies on them.
type chore struct {
	name  string // that it is about
	do    func(context.Context) error
	again []time.Duration // pauses before the repeats of a chore that was answered
	end   time.Time
	pause backoff
	heard chan struct{} // closed at the first answer, or when it is given up
	once  sync.Once
	loose bool // Close does not wait for it
}

// chores runs chores, not too many at a time: a store that is silent for long must not
// collect a goroutine for each lock that was given up.
//
// A store may be silent about one name only: in a database somebody can lock its row. So the
// names take turns, and a name has several workers only while half of all are free.
type chores struct {
	mu      sync.Mutex
	names   map[string]*errands // those with a chore that is due or under way
	ready   list.List           // of *errands: those with a chore that is due
	workers int
	n       int // of all, those included that wait for their time
}

// errands are the chores of one name.
type errands struct {
	name    string
	due     []*chore
	running int
	place   *list.Element // in ready
}

const (
	maxWorkers = 64
	maxChores  = 1 << 16
)

// insist starts a chore about name. crossed says that an exchange which it takes back was not answered.
func (c *Client) insist(name string, crossed bool, do func(context.Context) error) *chore {
	e := &chore{name: name, do: do, end: time.Now().Add(c.TTL()), pause: backoff{most: time.Second}, heard: make(chan struct{})}
	if crossed {
		e.again = []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, c.limit()}
	}
	c.chores.mu.Lock()
	full := c.chores.n >= maxChores
	if !full {
		c.chores.n++
	}
	c.chores.mu.Unlock()
	if full {
		c.logs.lose()
		e.settle()
		return e
	}
	c.work.add()
	c.queue(e)
	return e
}

// cancel takes a request back, and the grant it may have got.
func (c *Client) cancel(s *session, name, id string, crossed bool) *chore {
	return c.insist(name, crossed, func(ctx context.Context) error { return s.Cancel(ctx, name, id) })
}

// queue runs e as soon as a worker is free.
func (c *Client) queue(e *chore) {
	q := &c.chores
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(e)
	if q.workers >= maxWorkers {
		return
	}
	q.workers++
	if e := q.next(); e != nil {
		go func() {
			for e != nil {
				c.attend(e)
				e = q.after(e)
			}
		}()
	}
}

func (q *chores) add(e *chore) {
	n := q.names[e.name]
	if n == nil {
		if q.names == nil {
			q.names = map[string]*errands{}
		}
		n = &errands{name: e.name}
		q.names[e.name] = n
	}
	if n.due = append(n.due, e); n.place == nil {
		n.place = q.ready.PushBack(n)
	}
}

// after is next for a worker that has attended to e.
func (q *chores) after(e *chore) *chore {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.names[e.name]
	if n.running--; n.running == 0 && len(n.due) == 0 {
		delete(q.names, e.name)
	}
	return q.next()
}

// next returns a chore for a worker, or nil: the worker is not needed any more. No more names
// than there are workers have a chore under way, so the search is short.
func (q *chores) next() *chore {
	for place := q.ready.Front(); place != nil; place = place.Next() {
		n := place.Value.(*errands)
		if n.running > 0 && q.workers > maxWorkers/2 {
			continue
		}
		e := n.due[0]
		n.due[0], n.due = nil, n.due[1:]
		n.running++
		if q.ready.MoveToBack(place); len(n.due) == 0 {
			q.ready.Remove(place)
			n.due, n.place = nil, nil
		}
		return e
	}
	q.workers--
	return nil
}

// attend sends e once and decides whether, and when, it is sent again.
func (c *Client) attend(e *chore) {
	if c.life.Err() != nil {
		c.done(e)
		return
	}
	ctx, cancel := context.WithTimeout(c.life, c.limit())
	err := e.do(ctx)
	cancel()
	pause := time.Duration(0)
	switch {
	case err == nil || final(err) && !errors.Is(err, ErrRefused): // a store that refuses now may not do so later
		e.settle()
		if len(e.again) == 0 {
			c.done(e)
			return
		}
		pause, e.again = e.again[0], e.again[1:]
		if len(e.again) == 0 && !e.loose { // Close ends the session before such a late one
			e.loose = true
			c.work.leave()
		}
	case c.life.Err() != nil || time.Now().After(e.end):
		c.done(e)
		return
	default:
		pause = e.pause.next()
	}
	time.AfterFunc(pause, func() { c.queue(e) })
}

// settle tells who waits for the first answer.
func (e *chore) settle() { e.once.Do(func() { close(e.heard) }) }

// done ends e.
func (c *Client) done(e *chore) {
	e.settle()
	c.chores.mu.Lock()
	c.chores.n--
	c.chores.mu.Unlock()
	if !e.loose {
		c.work.leave()
	}
}

// soon waits until the store has heard of e, for a moment at most.
func (e *chore) soon() {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-e.heard:
	case <-t.C:
	}
}

// withdraw gives up l's request, and the grant it may have got. It returns when the store
// has heard that, or soon, while the attempt goes on beside it.
func (l *Lease) withdraw() { l.c.cancel(l.session, l.req.Name, l.req.ID, l.crossed).soon() }

// disown gives up l's request, of which only a push has said that it was granted, when the store
// says that there is no such grant. A stranger may have sent the push, and the place is then in
// line yet: the store would hand the lock over to it, and nobody would have it for a TTL.
func (l *Lease) disown() { l.c.cancel(l.session, l.req.Name, l.req.ID, false) }

// leftOpen reports whether err leaves open what the store has done: it may even do it later.
func leftOpen(err error) bool {
	return err != nil && !final(err) && !errors.Is(err, ErrUnavailable)
}

// hold names l's grant to the store.
func (l *Lease) hold() driver.Hold {
	return driver.Hold{Name: l.req.Name, ID: l.req.ID, Token: l.token}
}

// backoff is the pause before the next try: from 10 ms, doubled each time, to most.
type backoff struct{ last, most time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, 10*time.Millisecond), b.most)
	return b.last
}

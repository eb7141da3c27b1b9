package zk

import (
	"context"
	"slices"
	"sync"
)

// EventType is the kind of an event.
type EventType int32

// The events. All but the last come from the servers.
const (
	EventCreated         EventType = 1
	EventDeleted         EventType = 2
	EventDataChanged     EventType = 3
	EventChildrenChanged EventType = 4
	// EventSessionLost is the last event of every watch of a session that is over.
	EventSessionLost EventType = 101
)

// Event is an event of a watch. Path is the node's path.
type Event struct {
	Type EventType
	Path string
}

// Watch is a subscription to the events of a node. Its callback is called once, on a goroutine of
// the session. Callbacks run one after another, in the servers' order. Events during an outage come
// after it. The callback may use the session, but not Close it; while it runs, later events wait. A
// call may return before the callback of an earlier event has run.
type Watch struct {
	s    *Session
	kind watchKind
	path string
	f    func(Event)
	soon func(Event) bool // see Handler
	gone bool             // guarded by eventQueue.mu
}

// Handler receives the events of a watch.
type Handler struct {
	// Soon, if not nil, is called first, on the goroutine that reads from the connection. It is
	// called at once, perhaps before callbacks of earlier events. It must not wait for anything,
	// least of all for an answer. If it returns true, Func is not called.
	Soon func(Event) bool
	// Func is the callback; see Watch.
	Func func(Event)
}

type watchKind uint8

const (
	watchData  watchKind = iota // get, or exists of a node that exists
	watchExist                  // exists of a missing node
	watchChild
	watchKinds
)

// watchGroup is what servers keep once per connection, for any number of watches.
type watchGroup struct {
	path string
	kind watchKind // never watchExist: servers keep it as watchData
}

func (w *Watch) group() watchGroup {
	if w.kind == watchExist {
		return watchGroup{w.path, watchData}
	}
	return watchGroup{w.path, w.kind}
}

// watches are the watches of a session. The session's mutex guards them.
type watches struct {
	set     [watchKinds]map[string][]*Watch
	pending map[watchGroup]int // requests in flight that set such a watch
}

func newWatches() watches {
	w := watches{pending: map[watchGroup]int{}}
	for i := range w.set {
		w.set[i] = map[string][]*Watch{}
	}
	return w
}

// delivery is an event for a watch.
type delivery struct {
	w *Watch
	e Event
}

// take removes the one-shot watches of these kinds on path.
func (w *watches) take(out []delivery, e Event, path string, kinds ...watchKind) []delivery {
	for _, k := range kinds {
		for _, one := range w.set[k][path] {
			out = append(out, delivery{one, e})
		}
		delete(w.set[k], path)
	}
	return out
}

// fire returns what to deliver for an event of the servers.
func (w *watches) fire(e Event) []delivery {
	switch e.Type {
	case EventCreated, EventDataChanged:
		return w.take(nil, e, e.Path, watchData, watchExist)
	case EventChildrenChanged:
		return w.take(nil, e, e.Path, watchChild)
	case EventDeleted:
		return w.take(nil, e, e.Path, watchData, watchExist, watchChild)
	}
	return nil // the end of a removed watch
}

// all returns an event of this type for each watch.
func (w *watches) all(typ EventType) (out []delivery) {
	for k := range w.set {
		for path, list := range w.set[k] {
			for _, one := range list {
				out = append(out, delivery{one, Event{typ, path}})
			}
		}
	}
	return out
}

// resume returns the packets that set the watches on a new connection.
func (w *watches) resume(zxid int64) (packets []byte) {
	const limit = 128 << 10 // old servers refuse more
	var lists [watchKinds][]string
	size := 0
	flush := func() {
		if size == 0 {
			return
		}
		e := newPacket(size + 64)
		e.int32(xidSetWatches)
		e.int32(int32(opSetWatches))
		e.int64(zxid)
		for k := range lists {
			e.strings(lists[k])
		}
		packets = append(packets, e.finish()...)
		lists, size = [watchKinds][]string{}, 0
	}
	for k := range w.set {
		for path := range w.set[k] {
			if size+len(path)+64 > limit {
				flush()
			}
			lists[k] = append(lists[k], path)
			size += len(path) + 4
		}
	}
	flush()
	return packets
}

// watchAnswered registers the watch of a call, if the answer shows that the server keeps the watch.
// The caller holds the session's mutex.
func (s *Session) watchAnswered(c *call, code Code, readable bool) {
	w := c.watch
	set := code == 0 || code == ErrNoNode && w.kind == watchExist
	if w.kind == watchExist && code == 0 {
		w.kind = watchData
	}
	switch {
	case set && readable && !c.abandoned:
		s.watches.set[w.kind][w.path] = append(s.watches.set[w.kind][w.path], w)
	case set:
		s.release(w.group())
	}
}

// release removes a watch from the server if nobody uses it any more. The caller holds the
// session's mutex.
func (s *Session) release(g watchGroup) {
	kept, typ := len(s.watches.set[watchChild][g.path]), int32(1)
	if g.kind == watchData {
		kept, typ = len(s.watches.set[watchData][g.path])+len(s.watches.set[watchExist][g.path]), 2
	}
	if kept > 0 || s.watches.pending[g] > 0 || s.conn == nil || s.closing || s.old {
		return
	}
	c := pathCall(opRemoveWatches, g.path, 4)
	c.e.int32(typ)
	s.submit(c)
	s.wakeWriter()
}

// Remove ends the watch, at the server too if nobody else in the session uses it. After Remove the
// callback does not start. Remove may be called more than once, and never blocks.
func (w *Watch) Remove() {
	s := w.s
	s.events.forget(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.watches.set[w.kind][w.path]
	i := slices.Index(list, w)
	if i < 0 {
		return
	}
	if list = slices.Delete(list, i, i+1); len(list) > 0 {
		s.watches.set[w.kind][w.path] = list
		return
	}
	delete(s.watches.set[w.kind], w.path)
	s.release(w.group())
}

func (d *decoder) event() Event {
	typ := EventType(d.int32())
	d.int32() // state of the session
	return Event{typ, d.string()}
}

// eventQueue passes events to callbacks. It has no bound, so the reader never waits.
type eventQueue struct {
	mu   sync.Mutex
	list []delivery
	kick chan struct{}
}

func (q *eventQueue) put(all ...delivery) {
	if len(all) == 0 {
		return
	}
	q.mu.Lock()
	q.list = append(q.list, all...)
	q.mu.Unlock()
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

func (q *eventQueue) forget(w *Watch) {
	q.mu.Lock()
	w.gone = true
	q.mu.Unlock()
}

// Flush returns when the callbacks have run for all events that arrived before the call. These
// include all changes before a Sync that has returned.
func (s *Session) Flush(ctx context.Context) error {
	ran := make(chan struct{})
	s.events.put(delivery{&Watch{s: s, f: func(Event) { close(ran) }}, Event{}})
	select {
	case <-ran:
		return nil
	case <-s.lost: // the session may have ended before
		return s.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// deliver calls Soon of those that have it, and queues the other events.
func (s *Session) deliver(all []delivery) {
	rest := all[:0]
	for _, d := range all {
		if d.w.soon != nil {
			s.events.mu.Lock()
			gone := d.w.gone
			s.events.mu.Unlock()
			if gone || d.w.soon(d.e) {
				continue
			}
		}
		rest = append(rest, d)
	}
	s.events.put(rest...)
}

// run calls the callbacks until over is closed and the queue is empty.
func (q *eventQueue) run(over <-chan struct{}) {
	for {
		q.mu.Lock()
		list := q.list
		q.list = nil
		q.mu.Unlock()
		for _, d := range list {
			q.mu.Lock()
			gone := d.w.gone
			q.mu.Unlock()
			if !gone {
				d.w.f(d.e)
			}
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-q.kick:
		case <-over: // the last events were put before over was closed
			q.mu.Lock()
			empty := len(q.list) == 0
			q.mu.Unlock()
			if empty {
				return
			}
		}
	}
}

package redislock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// announcements are the subscriptions of a session to the channels of another library; see Format.
// The session subscribes before a request waits, and unsubscribes when no request has used the
// channel for a while.
type announcements struct {
	in  *session
	ctx context.Context // of what is under way; ends with close
	end context.CancelFunc

	mu       sync.Mutex
	channels map[string]*announcement
	beats    bool // beat runs

	opened     chan struct{} // yields when a subscription for grants stands; see holders.go
	pausedTill time.Duration // none is begun before, because one has failed
	closed     bool
	ending     sync.WaitGroup
}

type announcement struct {
	name  string
	of    string        // the one request that uses it; empty: any
	all   bool          // a message is for every waiter, else for one
	ready chan struct{} // closed when the subscription stands, or has failed
	err   error         // why it failed
	stops []func()
	used  time.Duration // when a request last needed it

	waited atomic.Bool // a request needs it, or did a while ago; else only grants do
	grants atomic.Bool // a grant needs it; see holders.go

	ended chan struct{} // not nil: it is being stopped; closed when that is done
}

func (e *announcements) start(s *session) {
	e.in, e.channels = s, map[string]*announcement{}
	e.ctx, e.end = context.WithCancel(context.Background())
}

// hears reports whether the session is subscribed to what a request of this mode needs; mode 0: of a
// latch.
func (s *session) hears(name, id string, mode driver.Mode, rw bool) bool {
	if s.b.format == nil {
		return true
	}
	e := &s.announced
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.channels[s.b.format.Channel(name, id, mode, rw)]
	if l == nil || l.ended != nil {
		return false
	}
	select {
	case <-l.ready:
		l.use(s.b.now())
		return l.err == nil
	default:
		return false
	}
}

// hear subscribes to what a request of this mode needs, and returns when that stands.
func (s *session) hear(ctx context.Context, name, id string, mode driver.Mode, rw bool) error {
	if s.b.format == nil {
		return nil
	}
	e, channel := &s.announced, s.b.format.Channel(name, id, mode, rw)
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return driver.ErrClosed
		}
		l, known := e.channels[channel]
		if !known {
			l = &announcement{name: name, all: mode == 0, ready: make(chan struct{})}
			if s.b.format.queued(mode, rw) {
				l.of = id
			}
			e.channels[channel] = l
			e.ending.Go(func() { e.open(l, channel) })
		}
		l.use(s.b.now())
		if l.of != "" && !e.beats {
			e.beats = true
			e.ending.Go(e.beat)
		}
		wait, ending := l.ready, l.ended != nil
		if ending { // its end must not end the next one, which may share its connection
			wait = l.ended
		}
		e.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("%w: no answer to SUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
		}
		if !ending {
			return l.err
		}
	}
}

// use notes that a request needs l. Called with e.mu held.
func (l *announcement) use(now time.Duration) {
	l.used = now
	l.waited.Store(true)
}

// open subscribes, for all callers that wait for l. In a Cluster the other library may use either
// kind of channel.
func (e *announcements) open(l *announcement, channel string) {
	ctx, cancel := context.WithTimeout(e.ctx, sharedFor)
	defer cancel()
	heard := func() { e.in.announcedBy(l) }
	c := Channel{Name: channel, Message: func(string) { heard() }, Again: heard, Waited: l.waited.Load}
	stop, err := e.in.b.conn.SubscribeMany(ctx, c)
	if err == nil {
		l.stops = append(l.stops, stop)
		if c.Sharded = e.in.b.cluster; c.Sharded {
			stop, err = e.in.b.conn.SubscribeMany(ctx, c)
			if err == nil {
				l.stops = append(l.stops, stop)
			} else if NoShards(err) {
				err = nil
			}
		}
	}
	if l.err = err; err != nil {
		e.mu.Lock()
		delete(e.channels, channel)
		e.mu.Unlock()
		l.stop()
	}
	close(l.ready)
}

func (l *announcement) stop() {
	for _, stop := range l.stops {
		stop()
	}
}

// announcedBy wakes waiters for l's name: one, whose question makes the store serve the whole queue,
// or all of them. It raises doubt about a grant of the name that listens.
func (s *session) announcedBy(l *announcement) {
	if s.wakes(l) {
		s.doubt(l.name)
	}
}

// wakes wakes waiters, and reports whether a grant listens.
func (s *session) wakes(l *announcement) (doubt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := ""
	for id, a := range s.requests {
		switch {
		case a.name != l.name:
		case a.token != 0:
			doubt = doubt || a.listens == a.token && l.grants.Load()
		case a.waits && l.all:
			a.wake.Put(0)
		case a.waits && (first == "" || a.asked < s.requests[first].asked):
			first = id
		case !a.waits:
			a.nudge = true
			s.requests[id] = a
		}
	}
	if first != "" {
		s.requests[first].wake.Put(0)
	}
	return doubt
}

// prune ends the subscriptions that were not used lately. Those of one request end with it: there may
// be a thousand in a second.
func (e *announcements) prune() {
	e.mu.Lock()
	defer e.mu.Unlock()
	waited, held := e.in.named() // a request is known to the session before it subscribes
	now := e.in.b.now()
	for channel, l := range e.channels {
		select {
		case <-l.ready:
		default:
			continue
		}
		idle := l.of != "" || now-l.used >= idleAfter
		if e.closed || waited[cmp.Or(l.of, l.name)] || !idle || l.ended != nil {
			continue
		}
		l.waited.Store(false)
		if held[l.name] && l.grants.Load() {
			continue
		}
		l.ended = make(chan struct{})
		e.ending.Go(func() {
			l.stop()
			e.mu.Lock()
			delete(e.channels, channel)
			e.mu.Unlock()
			close(l.ended)
		})
	}
}

// named returns the names of requests without a grant, with their IDs, and those of grants that
// listen.
func (s *session) named() (waited, held map[string]bool) {
	waited, held = map[string]bool{}, map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, a := range s.requests {
		switch {
		case a.token == 0:
			waited[a.name], waited[id] = true, true
		case a.listens == a.token:
			held[a.name] = true
		}
	}
	return waited, held
}

// close ends all subscriptions.
func (e *announcements) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.ending.Wait() // no other can start now
	var all sync.WaitGroup
	for _, l := range e.channels {
		all.Go(l.stop)
	}
	all.Wait()
}

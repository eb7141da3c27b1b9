package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/internal/listening"
)

const (
	silence           = 2 * time.Second // after which a subscription is checked
	shortest, longest = 10 * time.Millisecond, time.Second
)

// Subscribe implements redislock.Conn. A subscription costs one goroutine and one connection.
func (c *conn) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	s := newSubscription("subscribe", message, again)
	s.open = func() source { return c.client.Subscribe(c.ctx, channel) }
	if c.cluster == nil { // there every server forwards messages
		s.watch = c.watch(s, channel, false)
	}
	return c.subscribe(ctx, s)
}

// SubscribeShard implements redislock.Conn. It subscribes at the primary, whatever the client
// prefers to read from. A subscription costs two goroutines and one connection. If the primary dies
// or freezes, the subscription is at the next one within about ten seconds of its promotion.
func (c *conn) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	s := newSubscription("ssubscribe", message, again)
	s.open = func() source { return c.openShard(channel) }
	s.watch = c.watch(s, channel, true)
	return c.subscribe(ctx, s)
}

// openShard asks for a subscription. In a Cluster it does so at the server that the client takes for
// the primary. If that one is silent, this and each receive take the time silence, and not the
// client's ReadTimeout.
func (c *conn) openShard(channel string) *redis.PubSub {
	if c.cluster != nil {
		if node, err := c.cluster.MasterForKey(c.ctx, channel); err == nil {
			ctx, cancel := context.WithTimeout(c.ctx, silence)
			defer cancel()
			return node.WithTimeout(silence).SSubscribe(ctx, channel)
		}
	}
	return c.client.SSubscribe(c.ctx, channel)
}

// count counts the subscribers of a channel at the server that takes writes.
func (c *conn) count(ctx context.Context, channel, how string) (int64, error) {
	v, err := c.run(ctx, redislock.Listeners, []string{channel}, []string{how})
	return v.Int, err
}

// watch returns the check of the subscription s.
func (c *conn) watch(s *subscription, channel string, sharded bool) *listening.Watch {
	count := func(ctx context.Context, channel, how string) (int64, error) {
		s.asking()
		return c.count(ctx, channel, how)
	}
	return &listening.Watch{
		Channel: channel, Sharded: sharded, Count: count, Doubt: &c.doubt,
		Confirmed: s.standing, Settled: s.settle, Lost: s.stray,
	}
}

type subscription struct {
	kind    string // of the server's confirmation
	open    func() source
	shared  bool             // open returns a sharedSub, which does not connect again by itself
	watch   *listening.Watch // may be nil
	message func(string)
	again   func()
	first   chan error    // the result of the first try
	ended   chan struct{} // closed when listen has returned

	standing chan struct{} // yields when the server has confirmed the subscription

	mu        sync.Mutex
	sub       source // nil before the first try
	opened    time.Time
	astray    bool // sub was closed because it is at the wrong server
	stands    bool // the server has confirmed sub
	changes   int  // how often sub or stands was set
	asked     int  // changes, when watch asked the server last
	confirmed bool // a server has confirmed the subscription
	settled   bool // first has a result
	stopped   bool
}

func newSubscription(kind string, message func(string), again func()) *subscription {
	return &subscription{kind: kind, message: message, again: again, first: make(chan error, 1),
		ended: make(chan struct{}), standing: make(chan struct{}, 1)}
}

func (c *conn) subscribe(ctx context.Context, s *subscription) (func(), error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	loop, end := context.WithCancel(c.ctx)
	started := c.loops.Start(func() {
		defer close(s.ended)
		defer end()
		if s.watch != nil {
			c.loops.Go(func() { s.watch.Look(loop) })
		}
		c.listen(s)
	})
	if !started {
		end()
		return nil, driver.ErrClosed
	}
	stop := func() {
		end()
		s.stop()
	}
	var err error
	select {
	case err = <-s.first:
	case <-s.ended:
		select {
		case err = <-s.first:
		default:
			if err = driver.ErrClosed; !c.loops.Closed() { // the owner of the client has closed it
				err = fmt.Errorf("%w: %w", driver.ErrUnavailable, redis.ErrClosed)
			}
		}
	case <-ctx.Done():
		err = fmt.Errorf("%w: no answer to SUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (s *subscription) stop() {
	s.mu.Lock()
	s.stopped = true
	sub := s.sub
	s.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // it ends listen, too
	}
}

// replace subscribes on another connection. It returns false after stop.
func (s *subscription) replace() bool {
	s.mu.Lock()
	old := s.sub
	s.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	sub := s.open() // it may be slow
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sub, s.astray, s.stands = sub, false, false
	s.opened = time.Now()
	s.changes++
	if s.stopped {
		_ = sub.Close()
	}
	return !s.stopped
}

// take handles what was received. It reports what listen has to do.
func (s *subscription) take(m any) (confirmed, stopped, astray bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.(type) {
	case *redis.Message:
		if !s.stopped {
			s.message(m.Payload)
		}
	case *redis.Subscription:
		switch {
		case s.stopped:
		case m.Kind == "sunsubscribe": // the slot moved to another server
			s.astray = true
		case m.Kind != s.kind:
		default:
			s.confirmed, s.stands = true, true
			s.changes++
			if s.settled {
				s.again()
			}
			if s.watch == nil {
				s.settleLocked()
				break
			}
			select {
			case s.standing <- struct{}{}:
			default:
			}
		}
	}
	return s.confirmed, s.stopped, s.astray
}

// settle ends the first try.
func (s *subscription) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
}

func (s *subscription) settleLocked() {
	if !s.settled {
		s.settled = true
		s.first <- nil
	}
}

// asking records which subscription watch asks about.
func (s *subscription) asking() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = s.changes
}

// stray closes the subscription, which listen then opens at another server. It returns false if watch
// has asked about an earlier one, or if the server had little time to confirm this one.
func (s *subscription) stray() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.asked != s.changes || !s.stands && time.Since(s.opened) < 2*silence {
		return false
	}
	s.astray = true
	if t, ok := s.sub.(*sharedSub); ok && !t.sharded {
		t.on.end(errWrongServer) // its connection is at the wrong server
	}
	_ = s.sub.Close()
	return true
}

// listen receives until the subscription is closed. After an error the client reconnects and
// subscribes again at the next receive.
func (c *conn) listen(s *subscription) {
	defer s.stop()
	if !s.replace() {
		return
	}
	pause, pinged, tries := backoff.Pause{First: shortest, Most: longest}, false, 0
	for {
		s.mu.Lock()
		sub, stood := s.sub, s.stands
		s.mu.Unlock()
		m, err := c.receive(sub)
		confirmed, stopped, astray := s.take(m)
		if stopped || c.ctx.Err() != nil || !astray && c.clientClosed(err) {
			return
		}
		if err == nil && !astray {
			pause.Reset()
			pinged = false
			continue
		}
		var slow net.Error
		silent := confirmed && !astray && errors.As(err, &slow) && slow.Timeout()
		if silent && stood && !pinged && sub.Ping(c.ctx) == nil {
			pinged = true // silence is normal, unless the PING gets no answer either
			continue
		}
		pinged = false
		var reply redis.Error
		refused := errors.As(err, &reply)
		if tries++; !confirmed && (c.hopeless(err) || !c.moves && (tries > 1 || refused)) {
			s.first <- c.wrap(err)
			return
		}
		if s.shared {
			c.shared.refresh(c)
		} else {
			c.refresh()
		}
		if (astray || silent || refused || c.cluster != nil || s.shared) && !s.replace() {
			return
		}
		if !pause.Wait(c.ctx) { // the client may need a moment to find the server
			return
		}
	}
}

// hopeless reports whether err means that every server will refuse the subscription.
func (c *conn) hopeless(err error) bool {
	return err != nil && errors.Is(c.wrap(err), driver.ErrRefused)
}

// clientClosed reports whether err means that the program has closed its client. The client of a
// Cluster also closes what it has at a server that left the Cluster.
func (c *conn) clientClosed(err error) bool {
	if c.cluster == nil || !errors.Is(err, redis.ErrClosed) {
		return errors.Is(err, redis.ErrClosed)
	}
	var open atomic.Bool
	err = c.eachMaster(func(ctx context.Context, master *redis.Client) error {
		if !errors.Is(master.WithTimeout(answers).Ping(ctx).Err(), redis.ErrClosed) {
			open.Store(true)
		}
		return nil
	})
	return !open.Load() && (err == nil || errors.Is(err, redis.ErrClosed))
}

// receive waits for a message, and connects before if there is no connection.
func (c *conn) receive(sub source) (any, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*silence)
	defer cancel()
	return sub.ReceiveTimeout(ctx, silence)
}

// refresh makes the client of a Cluster read the slots. The client has no method for that alone.
func (c *conn) refresh() {
	if c.cluster != nil {
		// If no server answers, the next request tries again.
		_ = c.eachMaster(func(context.Context, *redis.Client) error { return nil })
	}
}

// eachMaster makes the client read the slots, and calls f for each primary, perhaps more than once.
// It returns when that is done, but after the time silence at the latest. The client asks a random
// server for the slots. If that one is silent, the client waits for its ReadTimeout, whatever the
// context says, before it asks another. So other tries begin beside the first.
func (c *conn) eachMaster(f func(context.Context, *redis.Client) error) error {
	const tries = 4
	late := time.NewTimer(silence)
	defer late.Stop()
	done := make(chan error, tries)
	var over atomic.Bool
	defer over.Store(true)
	for n := 1; ; n++ {
		var another <-chan time.Time
		if n <= tries {
			c.loops.Go(func() {
				done <- c.cluster.ForEachMaster(c.ctx, f)
				if over.Load() { // what it read may be older than what an earlier try read
					c.suspect()
				}
			})
			another = time.After(answers)
		}
		select {
		case err := <-done:
			return err
		case <-another:
		case <-late.C:
			return context.DeadlineExceeded
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

package rueidisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/internal/listening"
)

// Subscribe implements redislock.Conn. A subscription costs one goroutine and its own connection,
// so that messages do not queue behind answers.
func (c *conn) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	s := newSubscription("subscribe", message, again)
	s.receive = func(ctx context.Context) error {
		// Not returned to the pool: rueidis would unsubscribe it, see answersPing.
		client, _ := c.client.Dedicate()
		defer client.Close()
		return client.Receive(ctx, client.B().Subscribe().Channel(channel).Build(), s.take)
	}
	if !c.Cluster() { // there every server forwards messages
		s.watch = c.watch(s, channel, false)
	}
	return c.subscribe(ctx, s)
}

// SubscribeShard implements redislock.Conn. It shares the connection for requests to the channel's
// server: there may be many such channels.
func (c *conn) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return c.SubscribeMany(ctx, redislock.Channel{Name: channel, Sharded: true, Message: message, Again: again})
}

// SubscribeMany implements redislock.ManySubscriber. It shares the connection for requests.
func (c *conn) SubscribeMany(ctx context.Context, ch redislock.Channel) (func(), error) {
	kind, choose := "subscribe", c.single
	begin := func(b rueidis.Builder) rueidis.Completed { return b.Subscribe().Channel(ch.Name).Build() }
	end := func(b rueidis.Builder) rueidis.Completed { return b.Unsubscribe().Channel(ch.Name).Build() }
	if ch.Sharded {
		kind, choose = "ssubscribe", c.routed
		begin = func(b rueidis.Builder) rueidis.Completed { return b.Ssubscribe().Channel(ch.Name).Build() }
		end = func(b rueidis.Builder) rueidis.Completed { return b.Sunsubscribe().Channel(ch.Name).Build() }
	}
	s := newSubscription(kind, ch.Message, ch.Again)
	s.receive = c.sharing(s, ch.Name, choose, begin, end)
	if ch.Sharded || !c.Cluster() { // in a Cluster every server forwards messages of other channels
		s.watch = c.watch(s, ch.Name, ch.Sharded)
		s.watch.Waited = ch.Waited
	}
	return c.subscribe(ctx, s)
}

// routed returns the client, which sends each request to the right server.
func (c *conn) routed() rueidis.Client { return c.client }

// single returns the client of one server. In a Cluster a channel that is not sharded has no right server:
// c.client would send SUBSCRIBE to one and UNSUBSCRIBE to another.
func (c *conn) single() rueidis.Client {
	if c.Cluster() {
		for _, server := range c.client.Nodes() { // the first is another one each time
			return server
		}
	}
	return c.client
}

// sharing returns the receive of a subscription that shares the connection for requests. choose returns
// the client for each try.
func (c *conn) sharing(s *subscription, channel string, choose func() rueidis.Client,
	begin, end func(rueidis.Builder) rueidis.Completed) func(context.Context) error {
	s.shared = true
	at := choose()
	return func(ctx context.Context) error {
		err := at.Receive(ctx, begin(at.B()), s.take)
		from := at
		at = choose()
		if e, ok := rueidis.IsRedisErr(err); ok {
			// The client learns that later; this is the server to ask now.
			if addr, moved := e.IsMoved(); moved && c.Cluster() && from == c.client {
				if node, known := c.client.Nodes()[addr]; known {
					at = node
				}
			}
		}
		if ctx.Err() != nil && !(c.owned && c.loops.Closed()) {
			// A subscription that is abandoned at the client still exists at the server.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortLimit)
			defer cancel()
			if c.answersPing(ctx, from, channel) { // else it hands over to no waiter until the place expires
				_ = from.Do(ctx, end(from.B())).Error()
			}
		}
		return err
	}
}

// count counts the subscribers of a channel at the server that takes writes.
func (c *conn) count(ctx context.Context, channel, how string) (int64, error) {
	v, err := c.run(ctx, redislock.Listeners, []string{channel}, []string{how})
	return v.Int, err
}

// watch returns the check of the subscription s.
func (c *conn) watch(s *subscription, channel string, sharded bool) *listening.Watch {
	return &listening.Watch{
		Channel: channel, Sharded: sharded, Count: c.count, Doubt: &c.doubt,
		Confirmed: s.standing, Settled: s.settle,
	}
}

// answersPing reports whether the server of a channel would answer PING with PONG. A server that
// cannot save its data refuses PING as it refuses writes (MISCONF). rueidis sends a PING after the
// end of a subscription, to see where the confirmations end, and panics on an unexpected answer.
// That is on a goroutine of rueidis, so no caller can recover from it. The client of a Cluster cannot
// address a PING to that server. So this function sends it a write that changes nothing, even if there
// is a key of the channel's name.
func (c *conn) answersPing(ctx context.Context, server rueidis.Client, channel string) bool {
	if server != c.client {
		return server.Do(ctx, server.B().Ping().Build()).Error() == nil
	}
	const field = "holdfast looks for a server that takes writes" // no hash has it
	err := server.Do(ctx, server.B().Hdel().Key(channel).Field(field).Build()).Error()
	return err == nil || strings.HasPrefix(err.Error(), "WRONGTYPE")
}

// shortLimit bounds the end of a subscription, and a redial.
const shortLimit = time.Second

type subscription struct {
	kind    string // of the server's confirmation
	shared  bool   // it shares the connection for requests
	receive func(ctx context.Context) error
	watch   *listening.Watch // may be nil
	message func(string)
	again   func()
	first   chan error    // the result of the first try
	ended   chan struct{} // closed when listen has returned

	standing chan struct{} // yields when the server has confirmed the subscription

	mu      sync.Mutex
	settled bool // first has a result
	stopped bool
}

func newSubscription(kind string, message func(string), again func()) *subscription {
	return &subscription{kind: kind, message: message, again: again, first: make(chan error, 1),
		ended: make(chan struct{}), standing: make(chan struct{}, 1)}
}

func (c *conn) subscribe(ctx context.Context, s *subscription) (func(), error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	loop, cancel := context.WithCancel(c.ctx)
	started := c.loops.Start(func() {
		defer close(s.ended)
		defer cancel()
		c.listen(loop, s)
	})
	if !started {
		cancel()
		return nil, driver.ErrClosed
	}
	stop := func() {
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		cancel()
		if s.shared { // the channel may be subscribed to again, on the same connection
			t := time.NewTimer(2 * shortLimit)
			defer t.Stop()
			select {
			case <-s.ended:
			case <-t.C: // the client waits for a silent server
			}
		}
	}
	var err error
	select {
	case err = <-s.first:
	case <-s.ended:
		select {
		case err = <-s.first:
		default:
			err = driver.ErrClosed
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

func (s *subscription) take(m rueidis.PubSubMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.message(m.Message)
	}
}

func (s *subscription) confirm(p rueidis.PubSubSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Kind != s.kind || s.stopped {
		return
	}
	if s.settled {
		s.again()
	}
	if s.watch == nil {
		s.settleLocked()
		return
	}
	select {
	case s.standing <- struct{}{}:
	default:
	}
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

// listen subscribes, and again after a lost connection or a move of the channel, until ctx ends.
func (c *conn) listen(ctx context.Context, s *subscription) {
	const shortest, longest = 10 * time.Millisecond, time.Second
	for pause, try := (backoff.Pause{First: shortest, Most: longest}), 1; ; try++ {
		start := time.Now()
		astray, err := c.receiveAll(ctx, s)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		settled := s.settled
		s.mu.Unlock()
		if !settled && !astray {
			if err == nil {
				err = rueidis.ErrClosing
			}
			err = c.wrap(err)
			// The first try may have met a stale connection of the pool, or the wrong server.
			if errors.Is(err, driver.ErrRefused) || try > 1 && !c.moves() {
				s.first <- err
				return
			}
		}
		if time.Since(start) > longest {
			pause.Reset()
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// receiveAll receives until the subscription is lost, or turns out to be at the wrong server.
func (c *conn) receiveAll(ctx context.Context, s *subscription) (astray bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-s.standing: // the confirmation of an earlier subscription says nothing about this one
	default:
	}
	var looking sync.WaitGroup
	if s.watch != nil {
		watch := *s.watch
		watch.Lost = func() bool {
			astray = true
			cancel()
			return true
		}
		looking.Go(func() { watch.Look(ctx) })
	}
	err = s.receive(rueidis.WithOnSubscriptionHook(ctx, s.confirm))
	cancel()
	looking.Wait()
	return astray, err
}

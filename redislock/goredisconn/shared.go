package goredisconn

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/redislock"
)

// SubscribeMany implements redislock.ManySubscriber. All channels share one connection, in a Cluster
// sharded channels one for each primary. A channel costs two goroutines.
func (c *conn) SubscribeMany(ctx context.Context, ch redislock.Channel) (func(), error) {
	kind := "subscribe"
	if ch.Sharded {
		kind = "ssubscribe"
	}
	s := newSubscription(kind, ch.Message, ch.Again)
	s.shared = true
	s.open = func() source { return c.shared.sub(c, ch.Name, ch.Sharded) }
	if ch.Sharded || c.cluster == nil { // in a Cluster every server forwards messages of other channels
		s.watch = c.watch(s, ch.Name, ch.Sharded)
		s.watch.Waited = ch.Waited
	}
	return c.subscribe(ctx, s)
}

// A source is what a subscription receives from: a redis.PubSub or a sharedSub.
type source interface {
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	Ping(ctx context.Context, payload ...string) error
	Close() error
}

// sharedConns are the connections that channels share. The zero value is ready.
type sharedConns struct {
	mu   sync.Mutex
	open map[string]*sharedConn // by the address of a primary; "": for channels that are not sharded

	refreshing chan struct{} // not nil: refresh is under way; closed when it is done
}

// refresh makes the client of a Cluster read the slots, once for all channels of a connection that has
// ended. A channel that finds the old server is back here soon.
func (a *sharedConns) refresh(c *conn) {
	a.mu.Lock()
	wait := a.refreshing
	if wait == nil {
		a.refreshing = make(chan struct{})
	}
	a.mu.Unlock()
	if wait != nil {
		<-wait
		return
	}
	c.refresh()
	a.mu.Lock()
	close(a.refreshing)
	a.refreshing = nil
	a.mu.Unlock()
}

// A sharedConn is a connection for many channels. go-redis would connect again by itself, and then
// subscribe to all channels with one command, which a Cluster refuses. So a sharedConn ends with its
// connection, and each channel finds another.
type sharedConn struct {
	c      *conn
	key    string
	pubsub *redis.PubSub

	sending sync.Mutex // commands go out in the order of asked; taken before sharedConns.mu

	// sharedConns.mu guards what follows.
	subs    map[string][]*sharedSub // by channel
	asked   []*sharedSub            // whose subscription has no answer yet, in order
	leaving map[string]int          // confirmations to come of the end of a subscription
	over    bool
}

// errWrongServer ends a connection whose server takes the client's writes no more.
var errWrongServer = errors.New("the subscription is at the wrong server")

// A sharedSub is one subscription of a sharedConn.
type sharedSub struct {
	on      *sharedConn
	channel string
	sharded bool
	gone    bool // the server does not have the subscription (any more)
	closed  bool
	queue   []any         // what was received, and errors
	wake    chan struct{} // buffer of 1
}

// sub subscribes to a channel. Errors are received from what it returns.
func (a *sharedConns) sub(c *conn, channel string, sharded bool) source {
	key, open := "", func() *redis.PubSub { return c.client.Subscribe(c.ctx) }
	if sharded {
		node, err := c.cluster.MasterForKey(c.ctx, channel)
		if err != nil {
			return c.openShard(channel)
		}
		key, open = node.Options().Addr, func() *redis.PubSub { return node.WithTimeout(silence).SSubscribe(c.ctx) }
	}
	t := &sharedSub{channel: channel, sharded: sharded, wake: make(chan struct{}, 1)}
	for !a.join(c, t, key, open) {
	}
	t.subscribe()
	return t
}

// join adds t to the connection of key, which it opens if there is none. It returns false if the connection has
// just ended. It returns with the lock for its commands.
func (a *sharedConns) join(c *conn, t *sharedSub, key string, open func() *redis.PubSub) bool {
	a.mu.Lock()
	l := a.open[key]
	if l == nil {
		l = &sharedConn{c: c, key: key, pubsub: open(), subs: map[string][]*sharedSub{}, leaving: map[string]int{}}
		if a.open == nil {
			a.open = map[string]*sharedConn{}
		}
		a.open[key] = l
		c.loops.Go(l.run)
	}
	a.mu.Unlock()
	l.sending.Lock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.over {
		l.sending.Unlock()
		return false
	}
	t.on = l
	l.subs[t.channel] = append(l.subs[t.channel], t)
	l.asked = append(l.asked, t)
	return true
}

// subscribe sends the command of a sharedSub that has joined its connection.
func (t *sharedSub) subscribe() {
	l := t.on
	defer l.sending.Unlock()
	ctx, cancel := context.WithTimeout(l.c.ctx, 2*silence)
	defer cancel()
	do := l.pubsub.Subscribe
	if t.sharded {
		do = l.pubsub.SSubscribe
	}
	if err := do(ctx, t.channel); err != nil {
		l.end(err)
	}
}

// run receives until the connection has ended.
func (l *sharedConn) run() {
	for pinged := false; ; {
		m, err := l.c.receive(l.pubsub)
		var slow net.Error
		var reply redis.Error
		switch {
		case err == nil:
			pinged = false
			l.deliver(m)
		case errors.As(err, &reply):
			if !l.refused(err) {
				l.end(err)
				return
			}
		case errors.As(err, &slow) && slow.Timeout() && !pinged && l.c.ctx.Err() == nil && l.pubsub.Ping(l.c.ctx) == nil:
			pinged = true // silence is normal, unless the PING gets no answer either
		default:
			l.end(err)
			return
		}
	}
}

// deliver passes on what was received.
func (l *sharedConn) deliver(m any) {
	l.c.shared.mu.Lock()
	defer l.c.shared.mu.Unlock()
	switch m := m.(type) {
	case *redis.Message:
		for _, t := range l.subs[m.Channel] {
			t.put(m)
		}
	case *redis.Subscription:
		ends := m.Kind == "unsubscribe" || m.Kind == "sunsubscribe"
		if ends && l.leaving[m.Channel] > 0 {
			if l.leaving[m.Channel]--; l.leaving[m.Channel] == 0 {
				delete(l.leaving, m.Channel)
			}
			return
		}
		if i := slices.IndexFunc(l.asked, func(t *sharedSub) bool { return t.channel == m.Channel }); !ends && i >= 0 {
			l.asked = slices.Delete(l.asked, i, i+1)
		}
		for _, t := range l.subs[m.Channel] {
			t.gone = t.gone || ends
			t.put(m)
		}
	}
}

// refused passes an error of the server to the subscription that it answers.
func (l *sharedConn) refused(err error) bool {
	l.c.shared.mu.Lock()
	defer l.c.shared.mu.Unlock()
	if len(l.asked) == 0 {
		return false
	}
	t := l.asked[0]
	l.asked = l.asked[1:]
	t.gone = true
	t.put(err)
	return true
}

// end ends the connection and all its subscriptions.
func (l *sharedConn) end(err error) {
	a := &l.c.shared
	a.mu.Lock()
	first := !l.over
	l.over = true
	if a.open[l.key] == l {
		delete(a.open, l.key)
	}
	for _, all := range l.subs {
		for _, t := range all {
			t.put(err)
		}
	}
	clear(l.subs)
	a.mu.Unlock()
	if first {
		_ = l.pubsub.Close() // it ends run, too
	}
}

// put adds what t receives. Called with sharedConns.mu held.
func (t *sharedSub) put(m any) {
	t.queue = append(t.queue, m)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// ReceiveTimeout waits until something is received, or the Conn is closed. It has no time limit: the
// sharedConn notices a silent server.
func (t *sharedSub) ReceiveTimeout(context.Context, time.Duration) (any, error) {
	c := t.on.c
	for {
		c.shared.mu.Lock()
		if len(t.queue) > 0 {
			m := t.queue[0]
			t.queue = t.queue[1:]
			c.shared.mu.Unlock()
			if err, ok := m.(error); ok {
				return nil, err
			}
			return m, nil
		}
		over := t.closed || t.on.over
		c.shared.mu.Unlock()
		if over {
			return nil, redis.ErrClosed
		}
		select {
		case <-t.wake:
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
	}
}

// Ping sends nothing, since the sharedConn does that. It fails when that has ended.
func (t *sharedSub) Ping(context.Context, ...string) error {
	t.on.c.shared.mu.Lock()
	defer t.on.c.shared.mu.Unlock()
	if t.on.over {
		return redis.ErrClosed
	}
	return nil
}

// Close ends the subscription, unless another sharedSub has the channel, too.
func (t *sharedSub) Close() error {
	l, a := t.on, &t.on.c.shared
	l.sending.Lock()
	defer l.sending.Unlock()
	a.mu.Lock()
	if t.closed {
		a.mu.Unlock()
		return redis.ErrClosed
	}
	t.closed = true
	t.put(redis.ErrClosed)
	l.subs[t.channel] = slices.DeleteFunc(l.subs[t.channel], func(o *sharedSub) bool { return o == t })
	last := len(l.subs[t.channel]) == 0
	if last {
		delete(l.subs, t.channel)
	}
	idle, over, leave := len(l.subs) == 0, l.over, last && !t.gone
	if leave && !idle && !over {
		l.leaving[t.channel]++
	}
	a.mu.Unlock()
	switch {
	case over:
	case idle:
		l.end(redis.ErrClosed)
	case leave:
		do := l.pubsub.Unsubscribe
		if t.sharded {
			do = l.pubsub.SUnsubscribe
		}
		if err := do(l.c.ctx, t.channel); err != nil {
			l.end(err)
		}
	}
	return nil
}

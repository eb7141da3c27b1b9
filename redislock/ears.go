package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// ears are what a session hears with in a Cluster: for each shard in which it waits for
// something a subscription to the sharded channel, at the server that has the shard, so that a
// script there sees whether anybody hears it. Where there are no such channels (before Redis 7),
// one to the session's channel, which all servers pass on.
type ears struct {
	in  *session
	ctx context.Context // of what is under way; ends with close
	end context.CancelFunc

	mu     sync.Mutex
	shards map[int]*ear
	plain  *ear // for all shards that have no channels of their own
	closed bool
	ending sync.WaitGroup
}

// ear is one subscription.
type ear struct {
	ready chan struct{} // closed when the subscription stands, or has failed
	err   error         // why it failed
	mark  string        // what the session is called in records: see layout.go
	stop  func()        // nil if the subscription is the plain one
	used  time.Duration // when something was last about to wait here

	ended chan struct{} // not nil: it is being stopped; closed when that is done
}

// deafAfter is how long a subscription is kept when nothing is waited for.
const deafAfter = 30 * time.Second

func (e *ears) of(s *session) {
	e.in, e.shards = s, map[int]*ear{}
	e.ctx, e.end = context.WithCancel(context.Background())
}

// listening makes sure that the session hears what happens to name, if it is going to wait, and
// returns what it is called in the record of its place.
func (s *session) listening(ctx context.Context, name string, wait bool) (string, error) {
	if !s.b.cluster || !wait {
		return s.id, nil
	}
	mark, err := s.ears.listen(ctx, shardOf(name))
	return mark + s.id, err
}

// listens reports whether it does already.
func (s *session) listens(name string) bool {
	if !s.b.cluster {
		return true
	}
	e := &s.ears
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.shards[shardOf(name)]
	if l == nil || l.ended != nil {
		return false
	}
	select {
	case <-l.ready:
		return l.err == nil
	default:
		return false
	}
}

// listen returns when the subscription for a shard stands.
func (e *ears) listen(ctx context.Context, shard int) (mark string, err error) {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return "", driver.ErrClosed
		}
		l, known := e.shards[shard]
		if !known {
			l = &ear{ready: make(chan struct{})}
			e.shards[shard] = l
			e.ending.Go(func() { e.open(l, shard) })
		}
		l.used = e.in.b.now()
		wait := l.ready
		if l.ended != nil {
			wait = l.ended
		}
		e.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return "", fmt.Errorf("%w: no answer to SSUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
		}
		e.mu.Lock()
		again := l.ended != nil
		e.mu.Unlock()
		if !again {
			return l.mark, l.err
		}
	}
}

// open subscribes, on behalf of all who wait for l.
func (e *ears) open(l *ear, shard int) {
	ctx, cancel := context.WithTimeout(e.ctx, sharedFor)
	defer cancel()
	s := e.in
	c := newCall().tag(s.b.prefix, shard).str("s:").str(s.id).end().done()
	channel := c.strs[0]
	c.free()
	l.mark = "+"
	l.stop, l.err = s.b.conn.SubscribeShard(ctx, channel, s.message, func() { s.againIn(shard) })
	if NoShards(l.err) {
		l.mark, l.stop = "-", nil
		l.err = e.openPlain(ctx)
	}
	if l.err != nil {
		e.mu.Lock()
		delete(e.shards, shard)
		e.mu.Unlock()
	}
	close(l.ready)
}

// openPlain subscribes to the session's channel, once.
func (e *ears) openPlain(ctx context.Context) error {
	e.mu.Lock()
	l := e.plain
	if l != nil {
		e.mu.Unlock()
		<-l.ready // whoever opens it is bounded
		return l.err
	}
	l = &ear{ready: make(chan struct{})}
	e.plain = l
	e.mu.Unlock()
	s := e.in
	l.stop, l.err = s.b.conn.Subscribe(ctx, s.b.channel(s.id), s.message, s.again)
	if l.err != nil {
		e.mu.Lock()
		e.plain = nil
		e.mu.Unlock()
	}
	close(l.ready)
	return l.err
}

// prune ends the subscriptions of shards in which nothing has been waited for lately. busy are
// those in which something is.
func (e *ears) prune(busy *[shards]bool, now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	for shard, l := range e.shards {
		select {
		case <-l.ready:
		default:
			continue
		}
		if busy[shard] || now-l.used < deafAfter || l.ended != nil || l.err != nil {
			continue
		}
		l.ended = make(chan struct{})
		e.ending.Go(func() {
			if l.stop != nil {
				l.stop()
			}
			e.mu.Lock()
			delete(e.shards, shard)
			e.mu.Unlock()
			close(l.ended)
		})
	}
}

// close ends all subscriptions.
func (e *ears) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.ending.Wait() // no other begins now
	var all sync.WaitGroup
	for _, l := range e.shards {
		if l.stop != nil {
			all.Go(l.stop)
		}
	}
	if e.plain != nil && e.plain.stop != nil {
		all.Go(e.plain.stop)
	}
	all.Wait()
}

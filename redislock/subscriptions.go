package redislock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// subscriptions are the subscriptions of a session in a Cluster. The session has one for each shard
// in which it waits: to a sharded channel, at the server of the shard. So a script there can count
// the channel's subscribers. If servers have no sharded channels (before Redis 7), one subscription
// to the session's channel serves all shards: all servers forward its messages.
type subscriptions struct {
	in  *session
	ctx context.Context // of what is under way; ends with close
	end context.CancelFunc

	mu     sync.Mutex
	tags   map[string]*subscription // by the hash tag of a shard
	plain  *subscription            // serves all shards if there are no sharded channels
	closed bool
	ending sync.WaitGroup
}

type subscription struct {
	ready chan struct{} // closed when the subscription stands, or has failed
	err   error         // why it failed
	mark  string        // prefix of the session's ID in records: see layout.go
	stop  func()        // nil if plain serves the shard
	used  time.Duration // when a request last needed it

	ended chan struct{} // not nil: it is being stopped; closed when that is done
}

// idleAfter is how long an unused subscription is kept.
const idleAfter = 30 * time.Second

func (e *subscriptions) start(s *session) {
	e.in, e.tags = s, map[string]*subscription{}
	e.ctx, e.end = context.WithCancel(context.Background())
}

const (
	reachTries = 16 // so many names are asked about
	reachNext  = 200 * time.Millisecond
)

// reached asks servers of a Cluster until one answers, and returns an error if none does. It asks about names of
// its own, which lead to any servers. One that is away must not keep a session from the locks of the others: so
// another name follows after a failure, or a moment.
func (b *Backend) reached(ctx context.Context, id string) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error, reachTries)
	next := time.NewTimer(0)
	defer next.Stop()
	var failed error
	for begun, open := 0, 0; begun < reachTries || open > 0; {
		select {
		case <-next.C:
			if begun == reachTries {
				continue
			}
			name := id + strconv.Itoa(begun)
			go func() {
				_, err := b.Inspect(within, name)
				answers <- err
			}()
			begun, open = begun+1, open+1
			next.Reset(reachNext)
		case err := <-answers:
			if !unanswered(err) {
				return err
			}
			open, failed = open-1, cmp.Or(failed, err)
			next.Reset(0)
		}
	}
	return callers(ctx, failed)
}

// listening makes sure that the session gets messages about name, if wait is true. It returns the
// session's ID as its place records it.
func (s *session) listening(ctx context.Context, name string, wait bool) (string, error) {
	if !s.b.cluster || !wait {
		return s.id, nil
	}
	mark, err := s.subscriptions.listen(ctx, s.b.tagOf(name))
	return mark + s.id, err
}

// subscribed reports whether the session gets messages about name already.
func (s *session) subscribed(name string) bool {
	if !s.b.cluster {
		return true
	}
	e := &s.subscriptions
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.tags[s.b.tagOf(name)]
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
func (e *subscriptions) listen(ctx context.Context, tag string) (mark string, err error) {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return "", driver.ErrClosed
		}
		l, known := e.tags[tag]
		if !known {
			l = &subscription{ready: make(chan struct{})}
			e.tags[tag] = l
			e.ending.Go(func() { e.open(l, tag) })
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

// open subscribes, for all callers that wait for l.
func (e *subscriptions) open(l *subscription, tag string) {
	ctx, cancel := context.WithTimeout(e.ctx, sharedFor)
	defer cancel()
	s := e.in
	channel := s.b.prefix + "{" + tag + "}:s:" + s.id
	l.mark = "+"
	l.stop, l.err = s.b.conn.SubscribeShard(ctx, channel, s.message, func() { s.againIn(tag) })
	if NoShards(l.err) {
		l.mark, l.stop = "-", nil
		l.err = e.openPlain(ctx)
	}
	if l.err != nil {
		e.mu.Lock()
		delete(e.tags, tag)
		e.mu.Unlock()
	}
	close(l.ready)
}

// openPlain subscribes to the session's channel, once.
func (e *subscriptions) openPlain(ctx context.Context) error {
	e.mu.Lock()
	l := e.plain
	if l != nil {
		e.mu.Unlock()
		<-l.ready // the call that opens it is bounded
		return l.err
	}
	l = &subscription{ready: make(chan struct{})}
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

// prune ends the subscriptions of shards that were not used lately. busy are the shards with
// waiters.
func (e *subscriptions) prune(busy map[string]bool, now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	for tag, l := range e.tags {
		select {
		case <-l.ready:
		default:
			continue
		}
		if busy[tag] || now-l.used < idleAfter || l.ended != nil || l.err != nil {
			continue
		}
		l.ended = make(chan struct{})
		e.ending.Go(func() {
			if l.stop != nil {
				l.stop()
			}
			e.mu.Lock()
			delete(e.tags, tag)
			e.mu.Unlock()
			close(l.ended)
		})
	}
}

// close ends all subscriptions.
func (e *subscriptions) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.ending.Wait() // no other can start now
	var all sync.WaitGroup
	for _, l := range e.tags {
		if l.stop != nil {
			all.Go(l.stop)
		}
	}
	if e.plain != nil && e.plain.stop != nil {
		all.Go(e.plain.stop)
	}
	all.Wait()
}

package rueidisconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
)

// Subscribe is redislock.Conn's. A subscription costs one goroutine of ours, and a
// connection of its own, so that messages do not queue behind answers.
func (c *conn) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	s := &subscription{channel: channel, message: message, again: again, first: make(chan error, 1)}
	loop, cancel := context.WithCancel(c.ctx)
	c.loops.Go(func() {
		defer cancel()
		c.listen(loop, s)
	})
	stop := func() {
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		cancel()
	}
	select {
	case err := <-s.first:
		if err != nil {
			stop()
			return nil, err
		}
		return stop, nil
	case <-ctx.Done():
		stop()
		return nil, fmt.Errorf("%w: no answer to SUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
	}
}

type subscription struct {
	channel string
	message func(string)
	again   func()
	first   chan error // the outcome of the first try

	mu        sync.Mutex
	confirmed bool // at least once
	stopped   bool
}

func (s *subscription) receive(m rueidis.PubSubMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.message(m.Message)
	}
}

func (s *subscription) confirm(p rueidis.PubSubSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.Kind != "subscribe" || s.stopped:
	case s.confirmed:
		s.again()
	default:
		s.confirmed = true
		s.first <- nil
	}
}

// listen subscribes, and again when the connection was lost, until ctx ends.
func (c *conn) listen(ctx context.Context, s *subscription) {
	const shortest, longest = 10 * time.Millisecond, time.Second
	hooked := rueidis.WithOnSubscriptionHook(ctx, s.confirm)
	for pause, try := shortest, 1; ; try++ {
		start := time.Now()
		client, release := c.client.Dedicate()
		err := client.Receive(hooked, client.B().Subscribe().Channel(s.channel).Build(), s.receive)
		release()
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		hopeless := !s.confirmed && try > 1 // the first try may have met a stale connection of the pool
		s.mu.Unlock()
		if hopeless {
			if err == nil {
				err = rueidis.ErrClosing
			}
			s.first <- c.wrap(err)
			return
		}
		if time.Since(start) > longest {
			pause = shortest
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		pause = min(2*pause, longest)
	}
}

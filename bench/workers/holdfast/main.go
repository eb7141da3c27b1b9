// Command holdfast is a worker for "holdfast verify --worker" with holdfast itself, so that it can be
// compared with others under the same protocol.
package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/bench/workers/worker"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
)

func main() {
	hello := worker.Hello{Worker: "holdfast", Tokens: true, Queue: true, Wait: true}
	worker.Main(hello, func(url string, ttl time.Duration) (worker.Locker, error) {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return &locker{backend: redislock.New(goredisconn.New(redis.NewClient(o)), nil), ttl: ttl}, nil
	})
}

// locker has a client for each call under way: the place of a client in a queue is then that of its
// call.
type locker struct {
	backend driver.Backend
	ttl     time.Duration
	mu      sync.Mutex
	free    []*client
}

type client struct {
	*holdfast.Client
	id atomic.Int64 // of its call
}

func (l *locker) client() (*client, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		c := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		return c, nil
	}
	l.mu.Unlock()
	c := &client{}
	var err error
	c.Client, err = holdfast.New(context.Background(), l.backend, &holdfast.Config{TTL: l.ttl,
		Observer: &holdfast.Observer{Waiting: func(holdfast.Waiting) { worker.Queued(c.id.Load()) }}})
	return c, err
}

func (l *locker) done(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, c)
}

func (l *locker) Lock(id int64, name string, _, wait time.Duration) (worker.Lease, error) {
	c, err := l.client()
	if err != nil {
		return nil, err
	}
	c.id.Store(id)
	ctx, cancel := worker.Waiting(wait)
	defer cancel()
	m := c.Mutex(name)
	lock := m.Lock
	if wait == 0 {
		lock = m.TryLock
	}
	held, err := lock(ctx)
	if err != nil {
		l.done(c)
		unknown := errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable)
		if errors.Is(err, holdfast.ErrHeld) || errors.Is(err, context.DeadlineExceeded) && !unknown {
			return nil, nil
		}
		return nil, err
	}
	return &lease{held, l, c, context.AfterFunc(held.Context(context.Background()), func() {
		if errors.Is(held.Err(), holdfast.ErrLost) {
			worker.Lost(id)
		}
	})}, nil
}

type lease struct {
	*holdfast.Lease
	l    *locker
	c    *client
	stop func() bool
}

func (h *lease) Held() (bool, error) { return h.Err() == nil, nil }

func (h *lease) Unlock() (bool, error) {
	h.stop()
	err := h.Release()
	h.l.done(h.c)
	if errors.Is(err, holdfast.ErrLost) {
		return false, nil
	}
	return err == nil, err
}

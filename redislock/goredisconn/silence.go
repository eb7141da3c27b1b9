package goredisconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A network that forgets one connection has mostly forgotten all that are as old, and tells nobody. The pool hands
// them out one after the other, and each costs the client's ReadTimeout: together, more than a lease lasts. So
// when an exchange is not answered for a while, every idle connection is tried at once, and those that are
// silent leave the pool. The same is done when a connection has ended: a server that ends idle connections
// ends many, and the client does not notice that with TLS before it uses them.
const (
	quiet    = 500 * time.Millisecond // an exchange without an answer, before the others are tried
	answers  = 300 * time.Millisecond // how long an idle connection has to answer
	mostIdle = 256                    // how many are tried at once
)

// sweeper says whether the idle connections of a client are being tried.
type sweeper struct {
	mu           sync.Mutex
	busy, closed bool
	done         sync.WaitGroup
}

// begin reports whether they may be tried now.
func (s *sweeper) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || s.closed {
		return false
	}
	s.busy = true
	s.done.Add(1)
	return true
}

func (s *sweeper) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	s.done.Done()
}

// close waits until nothing is tried, and nothing is from then on.
func (s *sweeper) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.done.Wait()
}

// begin has the idle connections tried if over is not called soon. It makes the client of a Cluster that disregards
// contexts suspect its servers when ctx ends before that.
func (c *conn) begin(ctx context.Context) (over func()) {
	timer := time.AfterFunc(quiet, c.silent)
	if c.obedient || c.cluster == nil || ctx.Done() == nil {
		return func() { timer.Stop() }
	}
	stop := context.AfterFunc(ctx, c.suspect)
	return func() { timer.Stop(); stop() }
}

// silent tries the idle connections, unless that is being done.
func (c *conn) silent() {
	if c.sweeper.begin() {
		c.sweepAll()
	}
}

// ended does so in the background if err says that a connection has ended.
func (c *conn) ended(err error) {
	var op *net.OpError
	if gone := errors.Is(err, io.EOF) || errors.As(err, &op) && op.Op != "dial" && !op.Timeout(); gone && c.sweeper.begin() {
		go c.sweepAll()
	}
}

func (c *conn) sweepAll() {
	defer c.sweeper.end()
	switch client := c.client.(type) {
	case *redis.Client:
		sweep(c.ctx, client)
	case *redis.ClusterClient:
		_ = client.ForEachShard(c.ctx, func(ctx context.Context, shard *redis.Client) error {
			sweep(ctx, shard)
			return nil
		}) // without a map of the Cluster there are no connections to try
	}
}

// sweep asks as many times at once as the client has idle connections: each asks another one. The client closes those
// that do not answer.
func sweep(ctx context.Context, client *redis.Client) {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	impatient := client.WithTimeout(answers) // of the same pool
	var all sync.WaitGroup
	for range min(int(client.PoolStats().IdleConns), mostIdle) {
		all.Go(func() { _ = impatient.Ping(ctx).Err() }) // an error is what ends a connection
	}
	all.Wait()
}

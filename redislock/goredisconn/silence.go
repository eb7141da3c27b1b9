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

// A network that drops one connection has mostly dropped all that are as old, without notice. The
// pool returns them one after the other, and each costs the client's ReadTimeout: together, more
// than a lease lasts. So when an exchange has no answer for a while, all idle connections are tried
// at once, and silent ones leave the pool. The same happens when a connection has ended: a server
// that ends idle connections ends many, and with TLS the client notices that only when it uses
// them.
const (
	quiet    = 500 * time.Millisecond // an exchange without an answer, before the others are tried
	answers  = 300 * time.Millisecond // how long an idle connection has to answer
	mostIdle = 256                    // how many are tried at once
)

// sweeper records whether the idle connections of a client are being tried.
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

// close waits until nothing is tried, and prevents later tries.
func (s *sweeper) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.done.Wait()
}

// begin arranges that the idle connections are tried if over is not called soon. If the client of a
// Cluster ignores contexts and ctx ends first, it also suspects the servers.
func (c *conn) begin(ctx context.Context) (over func()) {
	timer := time.AfterFunc(quiet, c.silent)
	if c.obedient || c.cluster == nil || ctx.Done() == nil {
		return func() { timer.Stop() }
	}
	stop := context.AfterFunc(ctx, c.suspect)
	return func() { timer.Stop(); stop() }
}

// silent tries the idle connections, unless that is under way.
func (c *conn) silent() {
	if c.sweeper.begin() {
		c.sweepAll()
	}
}

// ended does the same in the background if err means that a connection has ended.
func (c *conn) ended(err error) {
	var op *net.OpError
	if gone := errors.Is(err, io.EOF) || errors.As(err, &op) && op.Op != "dial" && !op.Timeout(); gone &&
		c.sweeper.begin() {
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

// sweep sends as many pings at once as the client has idle connections: each uses another one. The
// client closes those that do not answer.
func sweep(ctx context.Context, client *redis.Client) {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	impatient := client.WithTimeout(answers) // with the same pool
	var all sync.WaitGroup
	for range min(int(client.PoolStats().IdleConns), mostIdle) {
		all.Go(func() { _ = impatient.Ping(ctx).Err() }) // an error closes the connection
	}
	all.Wait()
}

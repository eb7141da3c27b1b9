// Package goredisconn lets package redislock use github.com/redis/go-redis/v9. Package
// rueidisconn is faster; this one is for programs that have a go-redis client already.
package goredisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// New makes a client a redislock.Conn. The client stays the caller's: Close ends the
// Conn's subscriptions, but does not close it. With the client's option
// ContextTimeoutEnabled a request costs less; without it contexts are obeyed all the same.
func New(client redis.UniversalClient) redislock.Conn {
	c := &conn{client: client}
	if single, ok := client.(*redis.Client); ok {
		c.obedient = single.Options().ContextTimeoutEnabled
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

type conn struct {
	client   redis.UniversalClient
	obedient bool // the client obeys contexts
	closed   atomic.Bool
	once     sync.Once
	ctx      context.Context // ends with Close
	end      context.CancelFunc
	loops    sync.WaitGroup // the subscriptions
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.closed.Store(true)
		c.end()
		c.loops.Wait()
	})
	return nil
}

func (c *conn) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if err := c.ready(ctx); err != nil {
		return redislock.Value{}, err
	}
	r := c.await(ctx, func(ctx context.Context, words []any) redislock.Result {
		cmd := redis.NewCmd(ctx, words...)
		_ = c.client.Process(ctx, cmd) // cmd has the error
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			words[0], words[1] = "eval", s.Text
			cmd = redis.NewCmd(ctx, words...)
			_ = c.client.Process(ctx, cmd)
		}
		return c.result(cmd)
	}, words(s, keys, args))
	return r.Value, r.Err
}

// await runs f, which may not obey ctx.
func (c *conn) await(ctx context.Context, f func(context.Context, []any) redislock.Result, words []any) redislock.Result {
	if c.obedient || ctx.Done() == nil {
		return f(ctx, words)
	}
	done := make(chan redislock.Result, 1)
	go func() { done <- f(ctx, words) }()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		return redislock.Result{Err: fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())}
	}
}

func (c *conn) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	all := make([]redislock.Result, len(calls))
	fail := func(err error) []redislock.Result {
		for i := range all {
			all[i] = redislock.Result{Err: err}
		}
		return all
	}
	if err := c.ready(ctx); err != nil {
		return fail(err)
	}
	if len(calls) == 0 {
		return all
	}
	pipe := c.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		cmds[i] = pipe.Do(ctx, words(call.Script, call.Keys, call.Args)...)
	}
	r := c.await(ctx, func(ctx context.Context, _ []any) redislock.Result {
		_, _ = pipe.Exec(ctx) // each cmd has its error
		return redislock.Result{}
	}, nil)
	if r.Err != nil {
		return fail(r.Err)
	}
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			all[i].Value, all[i].Err = c.Run(ctx, calls[i].Script, calls[i].Keys, calls[i].Args)
		} else {
			all[i] = c.result(cmd)
		}
	}
	return all
}

func (c *conn) ready(ctx context.Context) error {
	if c.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nil
}

func words(s *redislock.Script, keys, args []string) []any {
	w := make([]any, 0, 3+len(keys)+len(args))
	w = append(w, "evalsha", s.SHA1, len(keys))
	for _, k := range keys {
		w = append(w, k)
	}
	for _, a := range args {
		w = append(w, a)
	}
	return w
}

func (c *conn) result(cmd *redis.Cmd) redislock.Result {
	v, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return redislock.Result{Err: c.wrap(err)}
	}
	return redislock.Result{Value: convert(v)}
}

func convert(v any) redislock.Value {
	switch v := v.(type) {
	case int64:
		return redislock.Value{Kind: redislock.Int, Int: v}
	case string:
		return redislock.Value{Kind: redislock.Text, Text: v}
	case []any:
		list := make([]redislock.Value, len(v))
		for i := range v {
			list[i] = convert(v[i])
		}
		return redislock.Value{Kind: redislock.List, List: list}
	}
	return redislock.Value{}
}

// wrap adds the sentinel that err means.
func (c *conn) wrap(err error) error {
	var reply redis.Error
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert), errors.As(err, &op) && op.Op == "remote error": // a TLS alert
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case errors.Is(err, redis.ErrClosed) && c.closed.Load():
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.As(err, &reply):
		return redislock.ServerError(reply.Error(), err)
	case strings.Contains(err.Error(), "pool timeout"):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
}

// Subscribe is redislock.Conn's. A subscription costs one goroutine and one connection.
func (c *conn) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	sub := c.client.Subscribe(c.ctx, channel)
	s := &subscription{channel: channel, sub: sub, message: message, again: again, first: make(chan error, 1)}
	c.loops.Go(func() { c.listen(s) })
	var err error
	select {
	case err = <-s.first:
	case <-ctx.Done():
		err = fmt.Errorf("%w: no answer to SUBSCRIBE: %w", driver.ErrUnavailable, ctx.Err())
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s.stop, nil
}

type subscription struct {
	channel string
	message func(string)
	again   func()
	first   chan error // the outcome of the first try

	mu        sync.Mutex
	sub       *redis.PubSub
	confirmed bool
	stopped   bool
}

func (s *subscription) stop() {
	s.mu.Lock()
	s.stopped = true
	sub := s.sub
	s.mu.Unlock()
	_ = sub.Close() // it ends listen, too
}

// replace subscribes on another connection. It reports false after stop.
func (s *subscription) replace(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	_ = s.sub.Close()
	s.sub = c.client.Subscribe(c.ctx, s.channel)
	return true
}

// listen receives until the subscription is closed. The client reconnects and subscribes
// again when it is asked to receive after an error.
func (c *conn) listen(s *subscription) {
	const silence, shortest, longest = 2 * time.Second, 10 * time.Millisecond, time.Second
	defer s.stop()
	pause, pinged, tries := shortest, false, 0
	for {
		s.mu.Lock()
		sub := s.sub
		s.mu.Unlock()
		m, err := sub.ReceiveTimeout(c.ctx, silence)
		s.mu.Lock()
		confirmed, stopped := s.confirmed, s.stopped
		switch m := m.(type) {
		case *redis.Message:
			if !stopped {
				s.message(m.Payload)
			}
		case *redis.Subscription:
			if stopped || m.Kind != "subscribe" {
				break
			}
			if s.confirmed {
				s.again()
			} else {
				s.confirmed = true
				s.first <- nil
			}
		}
		s.mu.Unlock()
		if stopped || c.ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
			return
		}
		if err == nil {
			pause, pinged = shortest, false
			continue
		}
		var reply redis.Error
		if tries++; !confirmed && (tries > 1 || errors.As(err, &reply)) {
			s.first <- c.wrap(err)
			return
		}
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() && confirmed {
			// Silence is normal, unless a PING is not answered either.
			if pinged && !s.replace(c) {
				return
			}
			pinged = !pinged && sub.Ping(c.ctx) == nil
			continue
		}
		pinged = false
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, longest)
	}
}

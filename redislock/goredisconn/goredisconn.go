// Package goredisconn lets package redislock use github.com/redis/go-redis/v9. Package rueidisconn
// is faster; this one is for programs that already have a go-redis client.
package goredisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/internal/listening"
)

// New makes a redislock.Conn from a client. The caller keeps the client: Close ends the Conn's
// subscriptions, but does not close it. Without the client's option ContextTimeoutEnabled a request
// may outlast its context by the client's ReadTimeout; a Backend does not wait for it.
//
// The client may lead to one server, to a primary behind sentinels (NewFailoverClient), or to a
// Cluster. With a Ring, or none, every method returns ErrInvalid. In a Cluster each shard in which a session
// waits costs a connection.
func New(client redis.UniversalClient) redislock.Conn {
	c := &conn{client: client}
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		c.invalid = fmt.Errorf("%w client: it is nil", driver.ErrInvalid)
		client = nil
	}
	switch client := client.(type) {
	case *redis.Client:
		c.obedient = client.Options().ContextTimeoutEnabled
		c.moves = client.Options().Addr == failover
	case *redis.ClusterClient: // it reads the slots whatever the context says
		c.cluster, c.moves = client, true
	case *redis.Ring:
		c.invalid = fmt.Errorf(
			"%w: a Ring spreads keys over servers that know nothing of each other; a lock must be in one place",
			driver.ErrInvalid)
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// failover is the address that NewFailoverClient gives its client.
const failover = "FailoverClient"

type conn struct {
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // the client, if it leads to a Cluster
	obedient bool                 // the client obeys contexts
	moves    bool                 // another server may replace the client's server
	invalid  error                // why the client cannot be used
	once     sync.Once
	ctx      context.Context // ends with Close
	end      context.CancelFunc
	loops    listening.Loops // the subscriptions
	shared   sharedConns     // of those that share connections
	doubt    listening.Doubt
	sweeper  sweeper
	known    atomic.Pointer[map[string]*redis.Client] // the servers that AskAll found last, by their names
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.loops.Close(c.end)
		c.sweeper.close()
	})
	return nil
}

// Cluster implements redislock.Conn.
func (c *conn) Cluster() bool { return c.cluster != nil }

func (c *conn) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	c.doubt.Used()
	return c.run(ctx, s, keys, args)
}

func (c *conn) run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if err := c.ready(ctx); err != nil {
		return redislock.Value{}, err
	}
	defer c.begin(ctx)()
	w := words(s, keys, args)
	cmd := command(ctx, w)
	_ = c.client.Process(ctx, cmd) // cmd has the error
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		w[0], w[1] = "eval", s.Text
		cmd = command(ctx, w)
		_ = c.client.Process(ctx, cmd)
	}
	r := c.result(cmd)
	return r.Value, r.Err
}

func (c *conn) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	c.doubt.Used()
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
	cmds := make([]once, len(calls))
	for i, call := range calls {
		cmds[i] = command(ctx, words(call.Script, call.Keys, call.Args))
		_ = pipe.Process(ctx, cmds[i]) // it only queues
	}
	over := c.begin(ctx)
	_, _ = pipe.Exec(ctx) // each cmd has its error
	over()
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
	if c.loops.Closed() {
		return driver.ErrClosed
	}
	if c.invalid != nil {
		return c.invalid
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

func (c *conn) result(cmd once) redislock.Result {
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

// suspect makes the client of a Cluster read the slots again: a silent server does not announce its
// successor.
func (c *conn) suspect() {
	if c.cluster != nil {
		c.cluster.ReloadState(c.ctx)
	}
}

// wrap adds the sentinel for the meaning of err.
func (c *conn) wrap(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		c.suspect()
		c.doubt.Raise()
		c.ended(err)
	} else if redis.IsReadOnlyError(err) {
		c.doubt.Raise()
	}
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert), errors.As(err, &op) && op.Op == "remote error": // a TLS alert
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case errors.Is(err, redis.ErrClosed) && c.loops.Closed():
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.As(err, &reply) && c.moves && redirected(reply): // more redirections than the client follows
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.As(err, &reply):
		return redislock.ServerError(reply.Error(), err, c.moves)
	case strings.Contains(err.Error(), "pool timeout"),
		strings.Contains(err.Error(), "sentinels specified in configuration are unreachable"):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
}

func redirected(e redis.Error) bool {
	return strings.HasPrefix(e.Error(), "MOVED ") || strings.HasPrefix(e.Error(), "ASK ")
}

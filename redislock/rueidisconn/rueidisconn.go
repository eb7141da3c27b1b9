// Package rueidisconn lets package redislock use github.com/redis/rueidis, the fastest of the Redis
// clients: concurrent requests share round trips.
package rueidisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/internal/listening"
)

// New makes a redislock.Conn from a client. The caller keeps the client: Close ends the Conn's
// subscriptions, but does not close it. Set its Dialer.Timeout and ConnWriteTimeout to a few
// seconds: they bound the wait for a silent server, besides contexts. Without a client every method
// returns ErrInvalid.
func New(client rueidis.Client) redislock.Conn {
	return newConn(client, false)
}

func newConn(client rueidis.Client, owned bool) *conn {
	c := &conn{client: client, owned: owned, ioTimeout: ioTimeout}
	if client == nil {
		c.invalid = fmt.Errorf("%w client: it is nil", driver.ErrInvalid)
	} else {
		c.mode = client.Mode()
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

type conn struct {
	client      rueidis.Client
	invalid     error // there is no client
	owned       bool  // opened by Dial
	mode        rueidis.ClientMode
	once        sync.Once
	ctx         context.Context // ends with Close
	end         context.CancelFunc
	loops       listening.Loops // the subscriptions
	doubt       listening.Doubt
	connections *connections  // opened by Dial; else nil
	waits       atomic.Bool   // RunWait was called
	pool        chan struct{} // a value for each connection of RunWait; nil: no limit
	ioTimeout   time.Duration // for an answer

	watchers []rueidis.ClientOption // options of clients of the sentinels, if Dial knows them
}

// lastMoment is how long Close waits for answers of exchanges under way.
const lastMoment = 300 * time.Millisecond

func (c *conn) Close() error {
	c.once.Do(func() {
		if c.connections != nil {
			c.connections.stop()
			// Also after Close: the client closes those to a Cluster in the background, and not those of RunWait.
			time.AfterFunc(lastMoment, c.connections.cut)
		}
		c.loops.Close(c.end)
		if c.owned {
			c.client.Close()
		}
	})
	return nil
}

// Cluster implements redislock.Conn.
func (c *conn) Cluster() bool { return c.mode == rueidis.ClientModeCluster }

// moves reports whether another server may replace the client's server.
func (c *conn) moves() bool {
	return c.mode == rueidis.ClientModeCluster || c.mode == rueidis.ClientModeSentinel
}

func (c *conn) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	c.doubt.Used()
	return c.run(ctx, s, keys, args)
}

func (c *conn) run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if err := c.ready(ctx); err != nil {
		return redislock.Value{}, err
	}
	if err := c.connections.begin(ctx); err != nil {
		return redislock.Value{}, err
	}
	defer c.connections.end()
	r := c.do(ctx, func() rueidis.Completed { return c.evalsha(s, keys, args) })
	if missing(r) {
		r = c.do(ctx, func() rueidis.Completed { return c.eval(s, keys, args) })
	}
	return c.value(r)
}

// do sends a command. Callers without a connection share one attempt to connect, which ends with
// the context of the first of them; the others then try again.
func (c *conn) do(ctx context.Context, build func() rueidis.Completed) rueidis.RedisResult {
	r := c.client.Do(ctx, build())
	for range dialsOfOthers {
		if !endedByAnother(ctx, r.NonRedisError()) {
			break
		}
		r = c.client.Do(ctx, build())
	}
	return r
}

// dialsOfOthers bounds how often do tries again.
const dialsOfOthers = 3

// endedByAnother reports whether err means that another caller's context ended while that caller
// was connecting. Nothing was sent.
func endedByAnother(ctx context.Context, err error) bool {
	var op *net.OpError
	return err != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) && errors.As(err, &op) && op.Op == "dial"
}

func (c *conn) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	c.doubt.Used()
	if len(calls) == 0 {
		return nil
	}
	results := make([]redislock.Result, len(calls))
	err := c.ready(ctx)
	if err == nil {
		err = c.connections.begin(ctx)
	}
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	defer c.connections.end()
	cmds := make(rueidis.Commands, len(calls))
	for i, call := range calls {
		cmds[i] = c.evalsha(call.Script, call.Keys, call.Args)
	}
	for i, r := range c.client.DoMulti(ctx, cmds...) {
		if endedByAnother(ctx, r.NonRedisError()) {
			r = c.do(ctx, func() rueidis.Completed { return c.evalsha(calls[i].Script, calls[i].Keys, calls[i].Args) })
		}
		if missing(r) {
			r = c.do(ctx, func() rueidis.Completed { return c.eval(calls[i].Script, calls[i].Keys, calls[i].Args) })
		}
		results[i].Value, results[i].Err = c.value(r)
	}
	return results
}

func (c *conn) ready(ctx context.Context) error {
	if c.invalid != nil {
		return c.invalid
	}
	if c.loops.Closed() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nil
}

func (c *conn) evalsha(s *redislock.Script, keys, args []string) rueidis.Completed {
	return c.client.B().Evalsha().Sha1(s.SHA1).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (c *conn) eval(s *redislock.Script, keys, args []string) rueidis.Completed {
	return c.client.B().Eval().Script(s.Text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func missing(r rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(r.Error())
	return ok && err.IsNoScript()
}

func (c *conn) value(r rueidis.RedisResult) (redislock.Value, error) {
	m, err := r.ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return redislock.Value{}, c.wrap(err)
	}
	return convert(&m)
}

func convert(m *rueidis.RedisMessage) (redislock.Value, error) {
	switch {
	case m.IsInt64():
		n, err := m.AsInt64()
		return redislock.Value{Kind: redislock.Int, Int: n}, err
	case m.IsString():
		s, err := m.ToString()
		return redislock.Value{Kind: redislock.Text, Text: s}, err
	case m.IsArray():
		list, err := m.ToArray()
		v := redislock.Value{Kind: redislock.List, List: make([]redislock.Value, len(list))}
		for i := range list {
			if v.List[i], err = convert(&list[i]); err != nil {
				return v, err
			}
		}
		return v, err
	}
	return redislock.Value{}, nil
}

// wrap adds the sentinel for the meaning of err.
func (c *conn) wrap(err error) error {
	if e, ok := rueidis.IsRedisErr(err); ok {
		if c.Cluster() && redirected(e) { // more redirections than the client follows
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		err = redislock.ServerError(e.Error(), err, c.moves())
		if r := (*redislock.Refusal)(nil); errors.As(err, &r) && (r.Code == "READONLY" || r.Code == "MASTERDOWN") {
			c.doubt.Raise()
			c.redial()
		}
		return err
	}
	c.doubt.Raise()
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &op) && op.Op == "remote error": // a TLS alert
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case errors.Is(err, rueidis.ErrNoAddr), errors.Is(err, rueidis.ErrNoSlot),
		errors.Is(err, storeurl.ErrPassword),
		errors.As(err, &op) && op.Op == "dial", err.Error() == notPrimary:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	// For rueidis.ErrClosing as well: the client was closed, or dropped the server, perhaps after the
	// request was sent.
	return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
}

// notPrimary is the client's error if the server that the sentinels name is not (or not yet) a
// primary. It is not exported.
const notPrimary = "the redis role is not master"

func redirected(e *rueidis.RedisError) bool {
	_, moved := e.IsMoved()
	_, ask := e.IsAsk()
	return moved || ask
}

package rueidisconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
)

// connections are the connections of a client that Dial has made. The client itself connects without a
// context, and closes a connection to a silent server only after a second.
//
// If a single server turns out to be a replica, they are closed: its address may lead to the new
// primary now, but the client would keep a working connection. Exchanges under way get their answers
// first, and others wait for new connections, so that no answer is lost.
type connections struct {
	redials bool            // they are those of a single server
	life    context.Context // ends attempts to connect
	stop    context.CancelFunc

	mu     sync.Mutex
	open   map[*connection]struct{}
	hung   time.Time     // when they were last closed
	busy   int           // exchanges under way
	idle   chan struct{} // during a redial: closed when no exchange is under way
	paused chan struct{} // closed when there are new connections; nil: the old ones stay
}

// lastAnswers bounds the wait for answers of exchanges under way.
const lastAnswers = time.Second

// begin begins an exchange, which end ends.
func (l *connections) begin(ctx context.Context) error {
	if l == nil || !l.redials {
		return nil
	}
	l.mu.Lock()
	for l.paused != nil {
		wait := l.paused
		l.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		}
		l.mu.Lock()
	}
	l.busy++
	l.mu.Unlock()
	return nil
}

func (l *connections) end() {
	if l == nil || !l.redials {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// connection is one connection.
type connection struct {
	net.Conn
	of *connections
}

// Close closes the connection.
func (l *connection) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// through records the connections of opt in l.
func (l *connections) through(opt *rueidis.ClientOption) {
	dial := opt.DialCtxFn
	if dial == nil {
		dial = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			if c != nil {
				return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", address)
			}
			return d.DialContext(ctx, "tcp", address)
		}
	}
	l.open = map[*connection]struct{}{}
	l.life, l.stop = context.WithCancel(context.Background())
	opt.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.life, cancel)()
		nc, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		made := &connection{nc, l}
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.life.Err(); err != nil { // cut may have closed the others
			_ = nc.Close()
			return nil, unreached("tcp", err)
		}
		l.open[made] = struct{}{}
		return made, nil
	}
}

// pause makes new exchanges wait, unless it did so a moment ago. It reports whether it did.
func (l *connections) pause() (idle <-chan struct{}, ok bool) {
	const moment = time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused != nil || time.Since(l.hung) < moment {
		return nil, false
	}
	l.paused, l.idle = make(chan struct{}), make(chan struct{})
	idle = l.idle
	if l.busy == 0 { // a subscription found out
		close(l.idle)
		l.idle = nil
	}
	return idle, true
}

// cut closes all connections, for ever.
func (l *connections) cut() {
	l.stop()
	l.hangUp()
}

// hangUp closes all connections, and returns their number.
func (l *connections) hangUp() int {
	l.mu.Lock()
	open := l.open
	l.open = map[*connection]struct{}{}
	l.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
	return len(open)
}

// resume lets exchanges begin again.
func (l *connections) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.paused)
	l.paused, l.idle, l.hung = nil, nil, time.Now()
}

// redial drops the connections to a server that has become a replica. The caller's own exchange is
// under way.
func (c *conn) redial() {
	if c.connections == nil || !c.connections.redials {
		return
	}
	idle, ok := c.connections.pause()
	if !ok {
		return
	}
	started := c.loops.Start(func() {
		defer c.connections.resume()
		select {
		case <-idle:
		case <-time.After(lastAnswers): // the server is silent
		case <-c.ctx.Done():
			return
		}
		closed := c.connections.hangUp()
		ctx, cancel := context.WithTimeout(c.ctx, shortLimit)
		defer cancel()
		// Until the client notices: the next request would be lost with the old connection.
		for range 3 {
			if c.client.Do(ctx, c.client.B().Ping().Build()).NonRedisError() == nil {
				break
			}
		}
		for range closed {
			if !c.waits.Load() || ctx.Err() != nil || c.fresh(ctx) { // Dedicate obeys no context
				break
			}
		}
	})
	if !started {
		c.connections.resume()
	}
}

// fresh reports whether the pool of connections for RunWait returned one that works. A broken one
// leaves the pool.
func (c *conn) fresh(ctx context.Context) bool {
	client, release := c.client.Dedicate()
	defer release()
	return client.Do(ctx, client.B().Ping().Build()).NonRedisError() == nil
}

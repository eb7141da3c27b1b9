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

// lines are the connections of a client of a single server. When that turns out to be a replica they are closed: its
// address may lead to the new primary by now, and the client would keep a connection that works. Exchanges that are under
// way are answered first, and others wait until there are new connections, so that nobody loses an answer.
type lines struct {
	mu      sync.Mutex
	open    map[*line]struct{}
	hung    time.Time     // when they were closed last
	busy    int           // exchanges under way
	idle    chan struct{} // while leaving: closed when none is
	leaving chan struct{} // closed when there are new connections; nil: the old ones stay
}

// lastWords bounds how long the answers of exchanges under way are waited for.
const lastWords = 300 * time.Millisecond

// begin begins an exchange, which leave ends.
func (l *lines) begin(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	for l.leaving != nil {
		wait := l.leaving
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

func (l *lines) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// line is one connection.
type line struct {
	net.Conn
	of *lines
}

// Close closes the connection.
func (l *line) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// through makes the connections of opt known to l.
func (l *lines) through(opt *rueidis.ClientOption) {
	dial := opt.DialCtxFn
	if dial == nil {
		dial = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			if c != nil {
				return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", address)
			}
			return d.DialContext(ctx, "tcp", address)
		}
	}
	l.open = map[*line]struct{}{}
	opt.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		nc, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		made := &line{nc, l}
		l.mu.Lock()
		l.open[made] = struct{}{}
		l.mu.Unlock()
		return made, nil
	}
}

// leave makes new exchanges wait, unless it did so a moment ago. It reports whether it did.
func (l *lines) leave() (idle <-chan struct{}, ok bool) {
	const moment = time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving != nil || time.Since(l.hung) < moment {
		return nil, false
	}
	l.leaving, l.idle = make(chan struct{}), make(chan struct{})
	idle = l.idle
	if l.busy == 0 { // a subscription was told
		close(l.idle)
		l.idle = nil
	}
	return idle, true
}

// hangUp closes all connections, and returns how many.
func (l *lines) hangUp() int {
	l.mu.Lock()
	open := l.open
	l.open = map[*line]struct{}{}
	l.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
	return len(open)
}

// back lets exchanges begin again.
func (l *lines) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.leaving)
	l.leaving, l.idle, l.hung = nil, nil, time.Now()
}

// redial leaves a server that has become a replica. The caller's own exchange is under way.
func (c *conn) redial() {
	if c.lines == nil {
		return
	}
	idle, ok := c.lines.leave()
	if !ok {
		return
	}
	c.loops.Go(func() {
		defer c.lines.back()
		select {
		case <-idle:
		case <-time.After(lastWords): // the server has fallen silent
		case <-c.ctx.Done():
			return
		}
		closed := c.lines.hangUp()
		ctx, cancel := context.WithTimeout(c.ctx, farewell)
		defer cancel()
		// Until the client knows: the next request would be lost with the old connection.
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
}

// fresh reports whether the pool of connections for RunWait has given out one that works. One that does not leaves it.
func (c *conn) fresh(ctx context.Context) bool {
	client, release := c.client.Dedicate()
	defer release()
	return client.Do(ctx, client.B().Ping().Build()).NonRedisError() == nil
}

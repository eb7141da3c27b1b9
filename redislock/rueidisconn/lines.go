package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// lines are the connections of a client of a single server. When that turns out to be a replica they are closed: its
// address may lead to the new primary by now, and the client would keep a connection that works.
type lines struct {
	mu   sync.Mutex
	open map[*line]struct{}
	hung time.Time // when they were closed last
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

// hangUp closes all connections, unless it did so a moment ago. It reports whether it did.
func (l *lines) hangUp() bool {
	const moment = time.Second
	l.mu.Lock()
	if time.Since(l.hung) < moment {
		l.mu.Unlock()
		return false
	}
	l.hung = time.Now()
	open := l.open
	l.open = map[*line]struct{}{}
	l.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
	return true
}

// redial closes the connections of a server that has become a replica, and returns when the client knows: the
// next request would be lost with the old connection.
func (c *conn) redial() {
	if c.lines == nil || !c.lines.hangUp() {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, farewell)
	defer cancel()
	for range 3 {
		if c.client.Do(ctx, c.client.B().Ping().Build()).NonRedisError() == nil {
			return
		}
	}
}

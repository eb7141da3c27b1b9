package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// wire counts the commands that clients send, and their connections. The server's own counts
// include the commands of scripts.
type wire struct {
	commands atomic.Int64
	open     atomic.Int64 // open connections
}

// countedConn embeds the TCP connection, so that clients still find all its methods.
type countedConn struct {
	*net.TCPConn
	w      *wire
	p      counter // used by Write only: clients write from one goroutine at a time
	closed atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.w.commands.Add(int64(c.p.feed(b)))
	return c.TCPConn.Write(b)
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.w.open.Add(-1)
	}
	return c.TCPConn.Close()
}

// counter finds commands in the bytes that a client sends on one connection.
type counter interface {
	// feed returns how many commands there are in b, the next piece of the stream.
	feed(b []byte) int
}

// parser finds the commands in a stream of RESP arrays of bulk strings.
type parser struct {
	kind byte // '*' or '$' of the current line
	num  int  // its number
	skip int  // remaining bytes of a bulk string, with its line end
}

// feed returns how many commands begin in b, the next piece of the stream.
func (p *parser) feed(b []byte) (n int) {
	for i := 0; i < len(b); {
		if p.skip > 0 {
			k := min(p.skip, len(b)-i)
			p.skip -= k
			i += k
			continue
		}
		switch c := b[i]; {
		case c == '*' || c == '$':
			p.kind, p.num = c, 0
		case c >= '0' && c <= '9':
			p.num = 10*p.num + int(c-'0')
		case c == '\n' && p.kind == '*':
			n++
		case c == '\n':
			p.skip = p.num + 2
		}
		i++
	}
	return n
}

func (w *wire) dial(ctx context.Context, d *net.Dialer, addr string, p counter) (net.Conn, error) {
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	return &countedConn{TCPConn: c.(*net.TCPConn), w: w, p: p}, nil
}

// rueidisOption configures a rueidis client as its README does, with counting.
func (w *wire) rueidisOption(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{addr},
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return w.dial(ctx, d, addr, new(parser))
		},
	}
}

// goredisClient returns a go-redis client as in its README, with counting.
func (w *wire) goredisClient(addr string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: addr,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, &net.Dialer{}, addr, new(parser))
		},
	})
}

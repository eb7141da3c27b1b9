package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/redis/rueidis"
)

// attempt is the attempt of a new client to connect. The client makes it without a context, and a
// silent server would keep it for a time limit. The end of ctx closes what it has connected.
type attempt struct {
	ctx   context.Context
	mu    sync.Mutex
	ended bool
	stops []func() bool // of what closes the connections
}

// through makes the client's connections until ends is called part of the attempt.
func (a *attempt) through(opt *rueidis.ClientOption) {
	dial := dialOf(opt)
	opt.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		a.mu.Lock()
		ended := a.ended
		a.mu.Unlock()
		if ended {
			return dial(ctx, address, d, c)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.ctx, cancel)()
		nc, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.ended {
			a.stops = append(a.stops, context.AfterFunc(a.ctx, func() { _ = nc.Close() }))
		}
		return nc, nil
	}
}

// ends makes the client independent of the context. It returns false if the context has ended before: the
// client's connections may be closed.
func (a *attempt) ends() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	whole := true
	for _, stop := range a.stops {
		whole = stop() && whole
	}
	a.stops = nil
	return whole
}

// dialOf returns how a client connects.
func dialOf(opt *rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	if opt.DialCtxFn != nil {
		return opt.DialCtxFn
	}
	return func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if c != nil {
			return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", address)
		}
		return d.DialContext(ctx, "tcp", address)
	}
}

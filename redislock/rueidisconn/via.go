package rueidisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

// Dialer makes a connection to an address. network is "tcp", or "unix" for the path of a socket. It
// obeys ctx, which ends soon enough that a silent server does not hang the caller.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// via returns the client's hook for its connections. With a hook the client leaves TLS to it.
func via(dial Dialer, network string) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, d.Timeout)
		defer cancel()
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, unreached(network, err)
		}
		if c == nil {
			return nc, nil
		}
		if c.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, errors.Join(unreached(network, err), nc.Close())
			}
			c = c.Clone()
			c.ServerName = host
		}
		secure := tls.Client(nc, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, err
		}
		return secure, nil
	}
}

// unreached returns the error of a failed connection in the form that wrap expects if nothing was
// sent.
func unreached(network string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return err
	}
	return &net.OpError{Op: "dial", Net: network, Err: err}
}

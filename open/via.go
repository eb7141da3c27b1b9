package open

import (
	"context"
	"errors"
	"net"
)

// Dialer makes a connection in place of net.Dialer. network is "tcp" or "unix". The host in address
// is that of the URL or of the store, and may be a name to look up. A Dialer obeys ctx.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// withOpErrors gives the errors of dial the form of those of net.Dialer. From that form the clients
// of the stores know that nothing was sent.
func withOpErrors(dial Dialer) Dialer {
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		var op *net.OpError
		if err == nil || errors.As(err, &op) && op.Op == "dial" {
			return c, err
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
}

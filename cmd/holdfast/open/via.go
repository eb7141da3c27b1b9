package open

import (
	"context"
	"errors"
	"net"
)

// Dialer makes a connection in place of net.Dialer. network is "tcp" or "unix"; the host in address is as
// the URL or the store named it, and may be a name to look up. It obeys ctx.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// unreached gives the errors of dial the form of net.Dialer's, from which the stores' clients know that
// nothing was sent.
func unreached(dial Dialer) Dialer {
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

package servers

import (
	"net"
	"time"
)

// Exchange connects to a server, sends first, if any, and reads the answer.
func Exchange(network, addr string, first []byte, read func(net.Conn) error) error {
	c, err := net.Dial(network, addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(first); err != nil {
		return err
	}
	return read(c)
}

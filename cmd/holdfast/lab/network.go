package lab

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/relay"
)

// relayed is the network between one program that uses holdfast and a server, as a relay. The
// program dials with dial.
type relayed struct {
	relay *relay.Relay
	// A connection begins with the key, a line, which only this process knows. Without it other
	// users of the machine could reach a server that only this user can reach.
	key string

	mu   sync.Mutex
	mode linkMode
	ends func() // of the fault
}

// newRelayed returns the network in front of a server.
func newRelayed(network, server string) (*relayed, error) {
	n := &relayed{key: rand.Text() + "\n"}
	var err error
	n.relay, err = relay.New(func(c net.Conn, in *bufio.Reader) (relay.Ends, error) {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := in.ReadSlice('\n')
		if err == nil && string(line) != n.key {
			err = driver.ErrRefused
		}
		_ = c.SetReadDeadline(time.Time{})
		return relay.Ends{Network: network, Server: server}, err
	})
	return n, err
}

// dial is an open.Dialer. All addresses lead to the one server.
func (n *relayed) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", n.relay.Addr)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, n.key); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// set implements network. The connections of a dead program are reset, as the kernel does.
func (n *relayed) set(m linkMode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends != nil {
		n.ends()
		n.ends = nil
	}
	switch m {
	case cut:
		n.ends = n.relay.Begin(relay.Impairment{Mode: relay.Hold | relay.Keep})
	case dead:
		n.ends = n.relay.Begin(relay.Impairment{Mode: relay.Refuse})
	case losing: // all answers until the network heals: a relay does not know a request
		n.ends = n.relay.Begin(relay.Impairment{Mode: relay.DropReplies})
	case lateAnswers:
		n.ends = n.relay.Begin(relay.Impairment{Mode: relay.HoldReplies | relay.Keep})
	}
	n.mode = m
}

func (n *relayed) current() linkMode {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mode
}

func (n *relayed) heal() { n.set(passing) }

// Close resets all connections.
func (n *relayed) Close() error {
	n.relay.Close()
	return nil
}

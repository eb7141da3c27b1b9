package testenv

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/relay"
)

// TCPProxy forwards TCP connections to a server, and disturbs them on command.
type TCPProxy struct {
	Addr string

	relay *relay.Relay
	wait  time.Duration // how long the target may not listen

	mu     sync.Mutex
	target string
	heal   []func() // ends the disturbance of the connections
	hasten []func() // ends Delay
}

// Proxy starts a proxy to the server at target, a host:port. When the test ends, it stops and
// resets its connections.
func Proxy(t testing.TB, target string) *TCPProxy {
	t.Helper()
	return newProxy(t, target, 0)
}

func newProxy(t testing.TB, target string, wait time.Duration) *TCPProxy {
	t.Helper()
	p := &TCPProxy{target: target, wait: wait}
	r, err := relay.New(p.route)
	must(t, err)
	t.Cleanup(r.Close)
	p.Addr, p.relay = r.Addr, r
	return p
}

// route sends all connections to the target. A client's name is its IP address.
func (p *TCPProxy) route(c net.Conn, _ *bufio.Reader) (to relay.Ends, err error) {
	p.mu.Lock()
	to = relay.Ends{Server: p.target, Wait: p.wait}
	p.mu.Unlock()
	to.Client, _, err = net.SplitHostPort(c.RemoteAddr().String())
	return to, err
}

// Reset resets all connections. New ones are accepted.
func (p *TCPProxy) Reset() { p.relay.Reset("", "") }

// Lead sends all connections to another server from now on, as an address does that moves to the
// next primary. It resets the open ones.
func (p *TCPProxy) Lead(target string) {
	p.Turn(target)
	p.Reset()
}

// Turn sends new connections to another server from now on. Open connections stay where they are.
func (p *TCPProxy) Turn(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Refuse resets all connections, and every new one at once.
func (p *TCPProxy) Refuse() { p.replace(&p.heal, relay.Impairment{Mode: relay.Refuse}) }

// Hole withholds all data in both directions. Connections stay open at the server; new ones are
// accepted and hang.
func (p *TCPProxy) Hole() { p.HoleFor("") }

// HoleFor is Hole for clients with these IP addresses only.
func (p *TCPProxy) HoleFor(ips ...string) {
	var all []relay.Impairment
	for _, ip := range ips {
		all = append(all, relay.Impairment{Client: ip, Mode: relay.Hold})
	}
	p.replace(&p.heal, all...)
}

// DropReplies forwards requests and discards the answers.
func (p *TCPProxy) DropReplies() { p.replace(&p.heal, relay.Impairment{Mode: relay.DropReplies}) }

// Delay delays all data by d, in each direction.
func (p *TCPProxy) Delay(d time.Duration) {
	p.replace(&p.hasten, relay.Impairment{Mode: relay.Slow, Delay: d})
}

// Heal ends the disturbance. It resets the connections that were affected.
func (p *TCPProxy) Heal() {
	p.replace(&p.hasten)
	p.replace(&p.heal)
}

// replace begins impairments, and ends those before.
func (p *TCPProxy) replace(heal *[]func(), by ...relay.Impairment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := *heal
	*heal = nil
	for _, i := range by {
		*heal = append(*heal, p.relay.Begin(i))
	}
	for _, end := range before {
		end()
	}
}

// Hold keeps back what clients send on the connections that are open now, until deliver is called.
// Answers and new connections pass. The server gets the data even if the client has closed its
// connection in between, and then the end of the connection. So a request arrives after one that
// was sent later on another connection.
func (p *TCPProxy) Hold() (deliver func()) {
	return p.relay.Begin(relay.Impairment{Mode: relay.HoldRequests | relay.Keep, Old: true})
}

// HoldReplies keeps back what the server sends on the connections that are open now, until deliver is
// called. Requests and new connections pass.
func (p *TCPProxy) HoldReplies() (deliver func()) {
	return p.relay.Begin(relay.Impairment{Mode: relay.HoldReplies | relay.Keep, Old: true})
}

// HoldAll is Hold for several proxies.
func HoldAll(proxies ...*TCPProxy) (deliver func()) {
	var all []func()
	for _, p := range proxies {
		all = append(all, p.Hold())
	}
	return func() {
		for _, d := range all {
			d()
		}
	}
}

// Forget turns every open connection into a black hole: nothing arrives in either direction, and
// neither side learns of it before the test ends, whatever the proxy does later. New connections
// work. The proxy's host still acknowledges data, so kernel timeouts (TCP_USER_TIMEOUT, keep-alive)
// do not end the connection.
func (p *TCPProxy) Forget() { p.relay.Forget() }

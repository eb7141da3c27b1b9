package testenv

import (
	"errors"
	"net"
	"sync"
)

// held is data that a client has sent and the server has not received.
type held struct{ data []byte }

// Hold keeps back what clients send on the connections that are open now, until deliver is called.
// Answers and new connections pass. The server gets the data even if the client has closed its
// connection in between, and then the end of the connection. So a request arrives after one that
// was sent later on another connection.
func (p *TCPProxy) Hold() (deliver func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var links []*proxyConn
	for l := range p.conns {
		if l.held == nil { // another Hold delivers its own data
			l.held = &held{}
			links = append(links, l)
		}
	}
	return sync.OnceFunc(func() {
		for _, l := range links {
			p.deliver(l)
		}
	})
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
func (p *TCPProxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		delete(p.conns, l)
		p.forgotten = append(p.forgotten, l)
	}
}

// dropLost closes the forgotten connections.
func (p *TCPProxy) dropLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.forgotten {
		rst(l.client)
		rst(l.server)
	}
}

// deliver forwards the data that was kept back, and all later data.
func (p *TCPProxy) deliver(l *proxyConn) {
	l.up.Lock()
	defer l.up.Unlock()
	p.mu.Lock()
	_, alive := p.conns[l]
	kept, left := l.held.data, l.left
	l.held = nil
	p.mu.Unlock()
	if !alive {
		return
	}
	var err error
	if len(kept) > 0 {
		_, err = l.server.Write(kept)
	}
	if left { // the server answers before it ends the connection itself
		if tcp, ok := l.server.(*net.TCPConn); ok {
			err = errors.Join(err, tcp.CloseWrite())
		}
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, alive := p.conns[l]; alive {
			p.drop(l)
		}
	}
}

// clientClosed records that the client has ended its side. It returns false if the server must not
// learn of that yet.
func (p *TCPProxy) clientClosed(l *proxyConn) bool {
	l.up.Lock()
	defer l.up.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, alive := p.conns[l]; !alive || l.held == nil {
		return false
	}
	l.left = true
	return true
}

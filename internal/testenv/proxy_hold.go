package testenv

import (
	"errors"
	"net"
	"sync"
)

// held is what a client has sent and the server does not have yet.
type held struct{ data []byte }

// Hold keeps back what clients send on the connections that are open now, until deliver is called. Answers pass, and so
// do new connections. The server gets what was kept back even if the client has closed its connection meanwhile, and
// then the end of the connection. So a request arrives after one that was sent later on another connection.
func (p *TCPProxy) Hold() (deliver func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var links []*link
	for l := range p.links {
		if l.held == nil { // what another Hold keeps back is its own
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

// Forget makes a black hole of every connection that is open now: nothing arrives on it in either direction, and
// neither side learns of it before the test ends, whatever else the proxy is told. New connections work. The proxy's
// host still acknowledges what the sides send, so a time limit of their kernels for that (TCP_USER_TIMEOUT, keep-alive)
// does not end the connection.
func (p *TCPProxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		delete(p.links, l)
		p.lost = append(p.lost, l)
	}
}

// dropLost closes the connections that were forgotten.
func (p *TCPProxy) dropLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lost {
		rst(l.client)
		rst(l.server)
	}
}

// deliver sends on what was kept back, and ends the keeping.
func (p *TCPProxy) deliver(l *link) {
	l.up.Lock()
	defer l.up.Unlock()
	p.mu.Lock()
	_, alive := p.links[l]
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
	if left { // the server answers what it has got before it ends the connection itself
		if tcp, ok := l.server.(*net.TCPConn); ok {
			err = errors.Join(err, tcp.CloseWrite())
		}
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, alive := p.links[l]; alive {
			p.drop(l)
		}
	}
}

// leave notes that the client has ended its side. It reports false unless the server is not to know that yet.
func (p *TCPProxy) leave(l *link) bool {
	l.up.Lock()
	defer l.up.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, alive := p.links[l]; !alive || l.held == nil {
		return false
	}
	l.left = true
	return true
}

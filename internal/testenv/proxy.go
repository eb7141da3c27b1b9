package testenv

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TCPProxy forwards TCP connections to a server, and disturbs them on command.
type TCPProxy struct {
	Addr string

	ln net.Listener

	targetWait time.Duration // how long the target may not listen

	mu        sync.Mutex
	target    string
	change    chan struct{} // closed when mode or delay changes
	mode      proxyMode
	spared    func(ip string) bool // clients exempt from a hole; nil: none
	delay     time.Duration
	conns     map[*proxyConn]struct{}
	forgotten []*proxyConn // connections that Forget left open
	stopped   bool
	wg        sync.WaitGroup
}

type proxyMode int

const (
	pass proxyMode = iota
	refuse
	hole
	dropReplies
)

// proxyConn is one connection through the proxy.
type proxyConn struct {
	client, server net.Conn
	from           string // the client's IP address
	disturbed      bool   // some of its data was withheld or lost

	up   sync.Mutex // held by a writer to the server; taken before TCPProxy.mu
	held *held      // data that Hold keeps back; nil: none
	left bool       // the client closed while Hold kept its data back
}

// Proxy starts a proxy to the server at target, a host:port. When the test ends, it stops and
// resets its connections.
func Proxy(t testing.TB, target string) *TCPProxy {
	t.Helper()
	return newProxy(t, target, 0)
}

func newProxy(t testing.TB, target string, targetWait time.Duration) *TCPProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &TCPProxy{
		Addr: ln.Addr().String(), target: target, ln: ln, targetWait: targetWait,
		change: make(chan struct{}), conns: map[*proxyConn]struct{}{},
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.stopped = true
		p.mu.Unlock()
		_ = ln.Close()
		p.set(refuse)
		p.reset(func(*proxyConn) bool { return true })
		p.dropLost()
		p.wg.Wait()
	})
	return p
}

// Reset resets all connections. New ones are accepted.
func (p *TCPProxy) Reset() { p.reset(func(*proxyConn) bool { return true }) }

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
func (p *TCPProxy) Refuse() {
	p.set(refuse)
	p.Reset()
}

// Hole withholds all data in both directions. Connections stay open at the server; new ones are
// accepted and hang.
func (p *TCPProxy) Hole() { p.HoleBut(nil) }

// HoleBut is Hole, except for clients whose IP address spared accepts.
func (p *TCPProxy) HoleBut(spared func(ip string) bool) {
	p.mu.Lock()
	p.spared = spared
	p.mu.Unlock()
	p.set(hole)
}

// DropReplies forwards requests and discards the answers.
func (p *TCPProxy) DropReplies() { p.set(dropReplies) }

// Delay delays all data by d, in each direction.
func (p *TCPProxy) Delay(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}

// Heal ends the disturbance. It resets the connections that were affected.
func (p *TCPProxy) Heal() {
	p.Delay(0)
	// Data that a hole withheld must not arrive now, so the reset comes first.
	p.reset(func(l *proxyConn) bool { return l.disturbed })
	p.set(pass)
	p.reset(func(l *proxyConn) bool { return l.disturbed })
}

func (p *TCPProxy) set(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.change)
	p.change = make(chan struct{})
}

func (p *TCPProxy) reset(which func(*proxyConn) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		if which(l) {
			p.drop(l)
		}
	}
}

// drop resets both ends of l. The caller holds p.mu.
func (p *TCPProxy) drop(l *proxyConn) {
	delete(p.conns, l)
	rst(l.client)
	rst(l.server)
}

func rst(c net.Conn) {
	if c == nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (p *TCPProxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.mode == refuse || p.stopped {
			p.mu.Unlock()
			rst(c)
			continue
		}
		l := &proxyConn{client: c}
		l.from, _, _ = net.SplitHostPort(c.RemoteAddr().String())
		p.conns[l] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(l) })
	}
}

func (p *TCPProxy) serve(l *proxyConn) {
	if !p.await(l) { // a hole does not connect
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	for end := time.Now().Add(p.targetWait); err != nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		server, err = net.DialTimeout("tcp", target, 5*time.Second)
	}
	p.mu.Lock()
	_, alive := p.conns[l]
	l.server = server
	if err != nil || !alive {
		if alive {
			p.drop(l)
		}
		p.mu.Unlock()
		if server != nil {
			rst(server)
		}
		return
	}
	p.mu.Unlock()
	p.wg.Go(func() { p.copy(l, l.client, true) })
	p.copy(l, l.server, false)
}

// await waits while there is a hole. It returns false if l was dropped during the wait.
func (p *TCPProxy) await(l *proxyConn) bool {
	for {
		p.mu.Lock()
		holed, change := p.holed(l), p.change
		_, alive := p.conns[l]
		l.disturbed = l.disturbed || holed
		p.mu.Unlock()
		if !alive || !holed {
			return alive
		}
		<-change
	}
}

// holed reports whether l's data is withheld now. The caller holds p.mu.
func (p *TCPProxy) holed(l *proxyConn) bool {
	return p.mode == hole && (p.spared == nil || !p.spared(l.from))
}

// copy copies one direction, up to the server or down to the client, until it ends.
func (p *TCPProxy) copy(l *proxyConn, from net.Conn, up bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			if delay > 0 {
				time.Sleep(delay)
			}
			if !p.await(l) {
				return
			}
			var werr error
			if up {
				werr = p.request(l, buf[:n])
			} else {
				werr = p.reply(l, buf[:n])
			}
			err = errors.Join(err, werr)
		}
		if err != nil && up && p.clientClosed(l) {
			return
		}
		if err != nil {
			p.mu.Lock()
			holed := p.holed(l)
			p.mu.Unlock()
			// During a hole the other end does not learn of the end.
			if holed && !p.await(l) {
				return
			}
			p.mu.Lock()
			if _, alive := p.conns[l]; alive {
				if errors.Is(err, io.EOF) { // forward a regular end as one
					delete(p.conns, l)
					_ = l.client.Close()
					_ = l.server.Close()
				} else {
					p.drop(l)
				}
			}
			p.mu.Unlock()
			return
		}
	}
}

// request writes to the server, or keeps the data back for Hold.
func (p *TCPProxy) request(l *proxyConn, data []byte) error {
	l.up.Lock()
	defer l.up.Unlock()
	p.mu.Lock()
	if l.held != nil {
		l.held.data = append(l.held.data, data...)
		p.mu.Unlock()
		return nil
	}
	p.mu.Unlock()
	_, err := l.server.Write(data)
	return err
}

// reply writes to the client. A client that closed while its data was kept back gets nothing.
func (p *TCPProxy) reply(l *proxyConn, data []byte) error {
	p.mu.Lock()
	drop := p.mode == dropReplies
	l.disturbed = l.disturbed || drop
	p.mu.Unlock()
	if drop {
		return nil
	}
	_, err := l.client.Write(data)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.held != nil || l.left {
		return nil
	}
	return err
}

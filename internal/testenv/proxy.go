package testenv

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TCPProxy passes TCP connections on to a server, and spoils them when it is told to.
type TCPProxy struct {
	Addr string

	ln net.Listener

	patience time.Duration // with a target that does not listen yet

	mu      sync.Mutex
	target  string
	change  chan struct{} // closed when mode or delay change
	mode    proxyMode
	spares  func(ip string) bool // whom a hole does not concern; nil: nobody
	delay   time.Duration
	links   map[*link]struct{}
	lost    []*link // what Forget left open
	stopped bool
	wg      sync.WaitGroup
}

type proxyMode int

const (
	pass proxyMode = iota
	refuse
	hole
	dropReplies
)

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	from           string // the client's IP address
	harmed         bool   // something that it carried was withheld or lost

	up   sync.Mutex // held by a writer to the server; taken before TCPProxy.mu
	held *held      // what Hold keeps back; nil: nothing
	left bool       // the client's end came while Hold kept its data back
}

// Proxy starts a proxy to the server at target, an address of host and port. It stops, and
// resets its connections, when the test ends.
func Proxy(t testing.TB, target string) *TCPProxy {
	t.Helper()
	return newProxy(t, target, 0)
}

func newProxy(t testing.TB, target string, patience time.Duration) *TCPProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &TCPProxy{
		Addr: ln.Addr().String(), target: target, ln: ln, patience: patience,
		change: make(chan struct{}), links: map[*link]struct{}{},
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.stopped = true
		p.mu.Unlock()
		_ = ln.Close()
		p.set(refuse)
		p.reset(func(*link) bool { return true })
		p.dropLost()
		p.wg.Wait()
	})
	return p
}

// Reset resets all connections. New ones are accepted.
func (p *TCPProxy) Reset() { p.reset(func(*link) bool { return true }) }

// Lead leads to another server from now on, as an address does that moves to the next primary. All connections are reset.
func (p *TCPProxy) Lead(target string) {
	p.Turn(target)
	p.Reset()
}

// Turn leads new connections to another server from now on. Those that are open stay where they are.
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

// Hole withholds everything in both directions. Connections stay open at the server;
// new ones are accepted, and hang.
func (p *TCPProxy) Hole() { p.HoleBut(nil) }

// HoleBut is Hole for all but those whose IP address spared accepts.
func (p *TCPProxy) HoleBut(spared func(ip string) bool) {
	p.mu.Lock()
	p.spares = spared
	p.mu.Unlock()
	p.set(hole)
}

// DropReplies passes requests on and throws the answers away.
func (p *TCPProxy) DropReplies() { p.set(dropReplies) }

// Delay passes everything on later by d, in each direction.
func (p *TCPProxy) Delay(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}

// Heal ends whatever was wrong. Connections that were harmed by it are reset.
func (p *TCPProxy) Heal() {
	p.Delay(0)
	// What a hole withheld must not arrive now: resetting comes first.
	p.reset(func(l *link) bool { return l.harmed })
	p.set(pass)
	p.reset(func(l *link) bool { return l.harmed })
}

func (p *TCPProxy) set(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.change)
	p.change = make(chan struct{})
}

func (p *TCPProxy) reset(which func(*link) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if which(l) {
			p.drop(l)
		}
	}
}

// drop resets both ends of l. Called with p.mu held.
func (p *TCPProxy) drop(l *link) {
	delete(p.links, l)
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
		l := &link{client: c}
		l.from, _, _ = net.SplitHostPort(c.RemoteAddr().String())
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(l) })
	}
}

func (p *TCPProxy) serve(l *link) {
	if !p.await(l) { // a hole does not connect
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	for end := time.Now().Add(p.patience); err != nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		server, err = net.DialTimeout("tcp", target, 5*time.Second)
	}
	p.mu.Lock()
	_, alive := p.links[l]
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

// await waits while there is a hole. It reports false if l was dropped meanwhile.
func (p *TCPProxy) await(l *link) bool {
	for {
		p.mu.Lock()
		holed, change := p.holed(l), p.change
		_, alive := p.links[l]
		l.harmed = l.harmed || holed
		p.mu.Unlock()
		if !alive || !holed {
			return alive
		}
		<-change
	}
}

// holed reports whether what l carries is withheld now. Called with p.mu held.
func (p *TCPProxy) holed(l *link) bool {
	return p.mode == hole && (p.spares == nil || !p.spares(l.from))
}

// copy carries one direction, up to the server or down to the client, until it ends.
func (p *TCPProxy) copy(l *link, from net.Conn, up bool) {
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
		if err != nil && up && p.leave(l) {
			return
		}
		if err != nil {
			p.mu.Lock()
			holed := p.holed(l)
			p.mu.Unlock()
			// Behind a hole the other end does not learn of it.
			if holed && !p.await(l) {
				return
			}
			p.mu.Lock()
			if _, alive := p.links[l]; alive {
				if errors.Is(err, io.EOF) { // a polite end stays one
					delete(p.links, l)
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

// request writes to the server, or keeps back what Hold wants to have kept.
func (p *TCPProxy) request(l *link, data []byte) error {
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

// reply writes to the client. A client that has left while its data was kept back hears nothing.
func (p *TCPProxy) reply(l *link, data []byte) error {
	p.mu.Lock()
	drop := p.mode == dropReplies
	l.harmed = l.harmed || drop
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

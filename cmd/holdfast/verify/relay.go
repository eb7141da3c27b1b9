package verify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// relay is between the workers and the store's servers, and disturbs their traffic. A worker
// connects to it and sends one line with its process, its target, and the relay's key:
//
//	p3.2 tcp 127.0.0.1:6379 KEY
//
// Then the relay passes bytes on as they are, TLS included. Only the coordinator and its workers
// know the key. Without it any user of this machine could reach servers that only the user of
// verify can reach.
type relay struct {
	addr string
	key  string
	ln   net.Listener
	ctx  context.Context // ends with close
	end  context.CancelFunc

	mu          sync.Mutex
	change      chan struct{} // closed when the impairments change or the relay ends
	impairments []*impairment
	links       map[*link]struct{}
	seen        map[string]bool // requested addresses
	lost        int             // dropped replies
	wg          sync.WaitGroup
}

// mode is how an impairment disturbs the traffic.
type mode uint8

// The modes may be combined.
const (
	holdRequests mode = 1 << iota // bytes to the server are withheld
	holdReplies                   // bytes from the server are withheld
	refuse                        // every connection is reset
	dropReplies                   // requests pass; a reply is dropped and its connection reset
	slow                          // bytes are late
	keep                          // withheld bytes arrive in the end, and so does the client's end
)

// impairment is one fault of the connections of a process to a server; "" means all.
type impairment struct {
	process, address string
	mode             mode
	delay, jitter    time.Duration // of slow: from delay to delay + jitter

	old  bool // only for connections open at its begin; they are reset at its end, except with keep
	only map[*link]bool
}

func (h *impairment) hits(l *link) bool {
	return (h.process == "" || h.process == l.process) && (h.address == "" || h.address == l.address) &&
		(h.only == nil || h.only[l])
}

// headLimit bounds how long a worker may take to send its first line, and dialLimit how long the
// relay may take to connect.
const (
	headLimit = 10 * time.Second
	dialLimit = 5 * time.Second
)

func newRelay(key string) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	r := &relay{
		addr: ln.Addr().String(), key: key, ln: ln, ctx: ctx, end: end,
		change: make(chan struct{}), links: map[*link]struct{}{}, seen: map[string]bool{},
	}
	r.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(c) })
		}
	})
	return r, nil
}

// close resets all connections and returns when all goroutines of the relay have ended.
func (r *relay) close() {
	r.end()
	_ = r.ln.Close()
	r.mu.Lock()
	for l := range r.links {
		r.drop(l)
	}
	r.changed()
	r.mu.Unlock()
	r.wg.Wait()
}

// addresses returns the server addresses that workers have requested, sorted.
func (r *relay) addresses() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for a := range r.seen {
		all = append(all, a)
	}
	slices.Sort(all)
	return all
}

// begin puts h into effect. The returned function ends it: connections with withheld bytes are
// reset before any of these can arrive late, except with keep.
func (r *relay) begin(h impairment) (heal func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.old {
		only := map[*link]bool{}
		for l := range r.links {
			only[l] = h.hits(l)
		}
		h.only = only
	}
	r.impairments = append(r.impairments, &h)
	if h.mode&refuse != 0 {
		r.resetThose(func(l *link) bool { return h.hits(l) })
	}
	r.changed()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.impairments = slices.DeleteFunc(r.impairments, func(x *impairment) bool { return x == &h })
		r.resetThose(func(l *link) bool { return h.hits(l) && (l.withheld || h.old) && h.mode&keep == 0 })
		r.changed()
	})
}

// reset resets the connections that h hits, once, and returns their number.
func (r *relay) reset(h impairment) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resetThose(func(l *link) bool { return h.hits(l) })
}

// resetThose is called with r.mu held.
func (r *relay) resetThose(which func(*link) bool) (n int) {
	for l := range r.links {
		if which(l) {
			r.drop(l)
			n++
		}
	}
	return n
}

// changed wakes all who wait for another state. Called with r.mu held.
func (r *relay) changed() {
	close(r.change)
	r.change = make(chan struct{})
}

// drop resets both ends of l. Called with r.mu held.
func (r *relay) drop(l *link) {
	delete(r.links, l)
	close(l.gone)
	rst(l.client)
	rst(l.server)
}

// finish closes l in order. Called with r.mu held.
func (r *relay) finish(l *link) {
	delete(r.links, l)
	close(l.gone)
	_ = l.client.Close()
	_ = l.server.Close()
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

// on returns the current impairment of l. Called with r.mu held.
func (r *relay) on(l *link) (m mode, delay, jitter time.Duration) {
	for _, h := range r.impairments {
		if h.hits(l) {
			m |= h.mode
			delay, jitter = max(delay, h.delay), max(jitter, h.jitter)
		}
	}
	return m, delay, jitter
}

// serve serves one connection, from its first line on.
func (r *relay) serve(c net.Conn) {
	in := bufio.NewReaderSize(c, 1<<10)
	l, err := r.head(c, in)
	if err != nil {
		rst(c)
		return
	}
	r.mu.Lock()
	m, _, _ := r.on(l)
	if m&refuse != 0 || r.ctx.Err() != nil {
		r.mu.Unlock()
		rst(c)
		return
	}
	if m&dropReplies != 0 {
		l.replies = someReplies()
	}
	r.links[l] = struct{}{}
	r.mu.Unlock()
	if !r.await(l, holdRequests|holdReplies) { // both directions: a new connection needs both
		return
	}
	d := net.Dialer{Timeout: dialLimit}
	server, err := d.DialContext(r.ctx, l.network, l.address)
	r.mu.Lock()
	_, there := r.links[l]
	l.server = server
	if err != nil {
		l.server = nil
		if there {
			r.drop(l)
		}
		r.mu.Unlock()
		return
	}
	if !there {
		r.mu.Unlock()
		rst(server)
		return
	}
	r.mu.Unlock()
	r.wg.Go(func() { r.carry(l, in, server, holdRequests) })
	r.carry(l, server, c, holdReplies)
}

var errHead = errors.New("invalid first line of the connection")

// head reads the first line.
func (r *relay) head(c net.Conn, in *bufio.Reader) (*link, error) {
	stop := context.AfterFunc(r.ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(headLimit))
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
	if len(words) != 4 || words[3] != r.key || words[0] == "" || !slices.Contains([]string{"tcp", "tcp4", "tcp6", "unix"}, words[1]) {
		return nil, fmt.Errorf("%w: %d words", errHead, len(words))
	}
	_ = c.SetReadDeadline(time.Time{})
	l := &link{process: words[0], network: words[1], address: words[2], client: c, gone: make(chan struct{})}
	r.mu.Lock()
	r.seen[l.address] = true
	r.mu.Unlock()
	return l, nil
}

// Package relay has a TCP relay, which is between clients and servers and disturbs their traffic.
package relay

import (
	"bufio"
	"cmp"
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// Relay passes connections on to servers, and disturbs them on command. Its methods may be called
// concurrently.
type Relay struct {
	Addr string // where it listens: host:port of the loopback interface

	ctx context.Context // ends with Close
	end context.CancelFunc

	mu          sync.Mutex
	change      chan struct{} // closed when the impairments change or the relay ends
	impairments []*impairment
	links       map[*link]struct{}
	forgotten   []*link // by Forget
	lost        int     // dropped replies
	wg          sync.WaitGroup
}

// Route returns the ends of a new connection. It may read what the client sends first; the relay
// passes on the rest of in. After an error the relay resets the connection. Close ends a read.
type Route func(client net.Conn, in *bufio.Reader) (Ends, error)

// Ends are the two ends of a connection.
type Ends struct {
	Client  string // its name in an Impairment
	Network string // of the server; "": tcp
	Server  string // its address
	// Wait is for how long the server may not listen yet. A newly elected leader of ZooKeeper does
	// not listen immediately, and a follower takes a reset connection for the leader's end.
	Wait time.Duration
}

// Mode is how an impairment disturbs the traffic.
type Mode uint8

// The modes may be combined.
const (
	HoldRequests Mode = 1 << iota // bytes to the server are withheld
	HoldReplies                   // bytes from the server are withheld
	Refuse                        // every connection is reset
	DropReplies                   // requests pass; replies are dropped
	ResetReplies                  // requests pass; a reply is dropped and its connection reset
	Slow                          // bytes are late
	Keep                          // withheld bytes arrive in the end, and so does the client's end
)

// Hold withholds all bytes. Connections stay open; new ones are accepted and hang.
const Hold = HoldRequests | HoldReplies

// Impairment is one fault of the connections of a client to a server; "" means all.
type Impairment struct {
	Client, Server string
	Mode           Mode
	Delay, Jitter  time.Duration // of Slow: from Delay to Delay + Jitter

	Old bool // only for connections open at its begin; they are reset at its end, except with Keep
}

type impairment struct {
	Impairment
	only map[*link]bool // of Old
}

func (h *impairment) hits(l *link) bool {
	return (h.Client == "" || h.Client == l.ends.Client) && (h.Server == "" || h.Server == l.ends.Server) &&
		(h.only == nil || h.only[l])
}

// dialLimit bounds how long the relay may take to connect.
const dialLimit = 5 * time.Second

// New starts a relay.
func New(route Route) (*Relay, error) {
	ctx, end := context.WithCancel(context.Background())
	r := &Relay{ctx: ctx, end: end, change: make(chan struct{}), links: map[*link]struct{}{}}
	var err error
	if r.Addr, _, err = r.listen(route); err != nil {
		end()
		return nil, err
	}
	return r, nil
}

// Forward listens at a further address, until stop. All its connections have these ends.
func (r *Relay) Forward(ends Ends) (addr string, stop func(), err error) {
	return r.listen(func(net.Conn, *bufio.Reader) (Ends, error) { return ends, nil })
}

func (r *Relay) listen(route Route) (addr string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = ln.Close() }
	context.AfterFunc(r.ctx, stop)
	r.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(c, route) })
		}
	})
	return ln.Addr().String(), stop, nil
}

// Close resets all connections and returns when all goroutines of the relay have ended.
func (r *Relay) Close() {
	r.end()
	r.mu.Lock()
	for l := range r.links {
		r.drop(l)
	}
	for _, l := range r.forgotten {
		l.reset()
	}
	r.changed()
	r.mu.Unlock()
	r.wg.Wait()
}

// Begin puts an impairment into effect. The returned function ends it: connections with withheld
// bytes or dropped replies are reset before any bytes can arrive late, except with Keep.
func (r *Relay) Begin(i Impairment) (heal func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &impairment{Impairment: i}
	if h.Old {
		only := map[*link]bool{}
		for l := range r.links {
			m, _, _ := r.on(l)
			only[l] = h.hits(l) && m&h.Mode&Keep == 0 // the earlier one delivers its bytes
		}
		h.only = only
	}
	r.impairments = append(r.impairments, h)
	if h.Mode&Refuse != 0 {
		r.reset(h.hits)
	}
	r.changed()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.impairments = slices.DeleteFunc(r.impairments, func(x *impairment) bool { return x == h })
		r.reset(func(l *link) bool { return h.hits(l) && (l.withheld || h.Old) && h.Mode&Keep == 0 })
		r.changed()
	})
}

// Reset resets the connections of a client to a server, once, and returns their number; "" means
// all.
func (r *Relay) Reset(client, server string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reset((&impairment{Impairment: Impairment{Client: client, Server: server}}).hits)
}

// Forget turns every open connection into a black hole: nothing arrives in either direction, and
// neither side learns of it before Close, whatever the relay does later. New connections work.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		r.remove(l)
		r.forgotten = append(r.forgotten, l)
	}
}

// Lost returns how many replies ResetReplies has dropped.
func (r *Relay) Lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// reset is called with r.mu held.
func (r *Relay) reset(which func(*link) bool) (n int) {
	for l := range r.links {
		if which(l) {
			r.drop(l)
			n++
		}
	}
	return n
}

// changed wakes all who wait for another state. Called with r.mu held.
func (r *Relay) changed() {
	close(r.change)
	r.change = make(chan struct{})
}

// remove ends the copying of l. Called with r.mu held.
func (r *Relay) remove(l *link) {
	delete(r.links, l)
	close(l.gone)
}

// drop resets both ends of l. Called with r.mu held.
func (r *Relay) drop(l *link) {
	r.remove(l)
	l.reset()
}

// on returns the current impairment of l. Called with r.mu held.
func (r *Relay) on(l *link) (m Mode, delay, jitter time.Duration) {
	for _, h := range r.impairments {
		if h.hits(l) {
			m |= h.Mode
			delay, jitter = max(delay, h.Delay), max(jitter, h.Jitter)
		}
	}
	return m, delay, jitter
}

// serve serves one connection.
func (r *Relay) serve(c net.Conn, route Route) {
	in := bufio.NewReaderSize(c, 1<<10)
	stop := context.AfterFunc(r.ctx, func() { _ = c.Close() })
	ends, err := route(c, in)
	stop()
	l := &link{ends: ends, client: c, gone: make(chan struct{})}
	r.mu.Lock()
	m, _, _ := r.on(l)
	if err != nil || m&Refuse != 0 || r.ctx.Err() != nil {
		r.mu.Unlock()
		rst(c)
		return
	}
	if m&ResetReplies != 0 {
		l.replies = someReplies()
	}
	r.links[l] = struct{}{}
	r.mu.Unlock()
	if !r.await(l, Hold) { // a new connection needs both directions
		return
	}
	server, err := r.dial(ends)
	r.mu.Lock()
	_, there := r.links[l]
	if err != nil {
		if there {
			r.drop(l)
		}
		r.mu.Unlock()
		return
	}
	l.server = server
	r.mu.Unlock()
	if !there {
		rst(server)
		return
	}
	r.wg.Go(func() { r.carry(l, in, server, HoldRequests) })
	r.carry(l, server, c, HoldReplies)
}

func (r *Relay) dial(ends Ends) (net.Conn, error) {
	d := net.Dialer{Timeout: dialLimit}
	for end := time.Now().Add(ends.Wait); ; {
		server, err := d.DialContext(r.ctx, cmp.Or(ends.Network, "tcp"), ends.Server)
		if err == nil || r.ctx.Err() != nil || !time.Now().Before(end) {
			return server, err
		}
		time.Sleep(time.Millisecond)
	}
}

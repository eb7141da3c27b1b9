package relay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// link is one connection through the relay.
type link struct {
	ends           Ends
	client, server net.Conn
	gone           chan struct{} // closed at the end of the link

	// With Relay.mu held:
	withheld bool // some of its bytes are withheld or dropped
	kept     bool // withheld bytes arrive late: the client may have gone meanwhile
	replies  int  // how many replies pass before one is dropped
}

// reset resets both ends. Called with Relay.mu held.
func (l *link) reset() {
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

// someReplies applies to a connection that opens while replies are dropped. Some of its requests
// are answered, so that the client makes progress and soon loses another reply.
func someReplies() int { return 3 + rand.IntN(40) }

// chunk is the result of one read, and when it may be passed on. The last one has an error.
type chunk struct {
	data []byte
	due  time.Time
	err  error
}

// queued bounds how many chunks are on their way in one direction; at the bound, reading stops.
const queued = 256

// carry passes one direction on until it ends: the one that hold would withhold. Late chunks stay
// in order.
func (r *Relay) carry(l *link, from io.Reader, to net.Conn, hold Mode) {
	queue := make(chan chunk, queued)
	r.wg.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			c := chunk{data: bytes.Clone(buf[:n]), err: err}
			r.mu.Lock()
			if m, delay, jitter := r.on(l); m&Slow != 0 {
				if jitter > 0 {
					delay += rand.N(jitter)
				}
				c.due = time.Now().Add(delay)
			}
			r.mu.Unlock()
			select {
			case queue <- c:
			case <-l.gone:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for {
		select {
		case c := <-queue:
			if !r.pass(l, c, to, hold) {
				return
			}
		case <-l.gone:
			return
		}
	}
}

// pass passes one chunk on when it may. It reports false if l has ended.
func (r *Relay) pass(l *link, c chunk, to net.Conn, hold Mode) bool {
	if late := time.Until(c.due); !c.due.IsZero() && late > 0 {
		t := time.NewTimer(late)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.gone:
			return false
		}
	}
	if !r.await(l, hold) {
		return false
	}
	if hold == HoldReplies && len(c.data) > 0 && r.dropReply(l) {
		c.data = nil
	}
	if len(c.data) > 0 {
		if _, err := to.Write(c.data); err != nil && c.err == nil && !(hold == HoldReplies && r.isKept(l)) {
			c.err = err
		}
	}
	if c.err == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.links[l]; there {
		server, ok := l.server.(interface{ CloseWrite() error })
		if ok && hold == HoldRequests && l.kept && server.CloseWrite() == nil {
			return false // the server answers what it received, and ends the connection itself
		}
		if errors.Is(c.err, io.EOF) { // an orderly end stays one
			r.remove(l)
			_ = l.client.Close()
			_ = l.server.Close()
		} else {
			r.drop(l)
		}
	}
	return false
}

// dropReply reports whether this reply must be dropped. It may have reset the connection.
func (r *Relay) dropReply(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.links[l]; !there {
		return true
	}
	m, _, _ := r.on(l)
	if m&DropReplies != 0 {
		l.withheld = true
		return true
	}
	if m&ResetReplies == 0 {
		return false
	}
	if l.replies--; l.replies >= 0 {
		return false
	}
	r.lost++
	r.drop(l)
	return true
}

// isKept reports whether the client of l may have gone before its requests arrive.
func (r *Relay) isKept(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _, _ := r.on(l)
	return l.kept || m&Keep != 0
}

// await waits while the bytes of l are withheld. It reports false if l has ended.
func (r *Relay) await(l *link, hold Mode) bool {
	for {
		r.mu.Lock()
		_, there := r.links[l]
		m, _, _ := r.on(l)
		change := r.change
		l.withheld = l.withheld || there && slices.ContainsFunc(r.impairments, func(h *impairment) bool {
			return h.hits(l) && h.Mode&hold != 0 && h.Mode&Keep == 0
		})
		l.kept = l.kept || m&Keep != 0
		r.mu.Unlock()
		if !there || m&hold == 0 {
			return there
		}
		select {
		case <-change:
		case <-l.gone:
		}
	}
}

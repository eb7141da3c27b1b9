package verify

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// link is one connection through the relay.
type link struct {
	process, network, address string
	client, server            net.Conn
	gone                      chan struct{} // closed at the end of the link

	// With relay.mu held:
	withheld bool // some of its bytes are withheld
	kept     bool // withheld bytes arrive late: the client may have gone meanwhile
	replies  int  // how many replies pass before one is dropped
}

// someReplies applies to a connection that opens while replies are dropped. Some of its requests
// are answered, so that the worker makes progress and soon loses another reply.
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
func (r *relay) carry(l *link, from io.Reader, to net.Conn, hold mode) {
	queue := make(chan chunk, queued)
	r.wg.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			c := chunk{data: bytes.Clone(buf[:n]), err: err}
			r.mu.Lock()
			if m, delay, jitter := r.on(l); m&slow != 0 {
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
func (r *relay) pass(l *link, c chunk, to net.Conn, hold mode) bool {
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
	if hold == holdReplies && len(c.data) > 0 && r.dropReply(l) {
		return false
	}
	if len(c.data) > 0 {
		if _, err := to.Write(c.data); err != nil && c.err == nil && !(hold == holdReplies && r.isKept(l)) {
			c.err = err
		}
	}
	if c.err == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.links[l]; there {
		if server, ok := l.server.(*net.TCPConn); ok && hold == holdRequests && l.kept && server.CloseWrite() == nil {
			return false // the server answers what it received, and ends the connection itself
		}
		if errors.Is(c.err, io.EOF) { // an orderly end stays one
			r.finish(l)
		} else {
			r.drop(l)
		}
	}
	return false
}

// dropReply reports whether this reply must be dropped, and then resets the connection.
func (r *relay) dropReply(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.links[l]; !there {
		return true
	}
	if m, _, _ := r.on(l); m&dropReplies == 0 {
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
func (r *relay) isKept(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _, _ := r.on(l)
	return l.kept || m&keep != 0
}

// await waits while the bytes of l are withheld. It reports false if l has ended.
func (r *relay) await(l *link, hold mode) bool {
	for {
		r.mu.Lock()
		_, there := r.links[l]
		m, _, _ := r.on(l)
		change := r.change
		if there && m&hold != 0 {
			l.withheld = true
		}
		l.kept = l.kept || m&keep != 0
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

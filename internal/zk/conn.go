package zk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// conn is one connection of a session. One goroutine writes to it and one reads.
type conn struct {
	s    *Session
	nc   net.Conn
	r    *bufio.Reader
	dead chan struct{}
	wg   sync.WaitGroup

	// Guarded by the session's mutex.
	inflight []*call // sent; answers come in this order
	lastRead time.Time
	xid      int32
	writing  bool // a goroutine is writing and owns buf
	buf      []byte
}

// drop gives up c. The outcome of its requests in flight is unknown. The caller holds the session's
// mutex.
func (s *Session) drop(c *conn, why error) {
	if c == nil || s.conn != c {
		return
	}
	s.conn = nil
	close(c.dead)
	_ = c.nc.Close()
	for _, call := range c.inflight {
		s.finishWatch(call)
		call.finish(uncertain(why))
	}
	c.inflight = nil
}

func (c *conn) fail(err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.drop(c, err)
}

// write sends first, and then everything in the queue at once.
func (c *conn) write(first []byte) {
	s := c.s
	for ok := c.flush(first); ok; {
		s.mu.Lock()
		if s.conn != c {
			s.mu.Unlock()
			return
		}
		mine := !c.writing && len(s.queue) > 0
		if mine {
			c.writing = true
			c.buf = c.drain(c.buf[:0])
		}
		s.mu.Unlock()
		if mine {
			ok = c.flush(c.buf)
			continue
		}
		select {
		case <-s.wake:
		case <-c.dead:
			return
		}
	}
}

// drain moves the queue to the requests in flight, and appends their packets to buf. The caller
// holds the session's mutex.
func (c *conn) drain(buf []byte) []byte {
	s := c.s
	now, proving := time.Now(), s.now()
	for _, call := range s.queue {
		c.xid = max(c.xid+1, 1)
		buf = append(buf, call.packet(c.xid)...)
		call.e.b = nil
		call.sent, call.sentAt, call.proving = true, now, proving
		if call.op.fromLeader() {
			s.asked = now
		}
	}
	c.inflight = append(c.inflight, s.queue...)
	clear(s.queue)
	s.queue = s.queue[:0]
	return buf
}

// flush writes buf. The caller is the writer, and no longer is when flush returns. flush returns
// false if the connection is broken.
func (c *conn) flush(buf []byte) bool {
	if len(buf) > 0 {
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.Timeout() / 4)) // Write returns the error
		if _, err := c.nc.Write(buf); err != nil {
			c.fail(err)
			return false
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if cap(c.buf) > 64<<10 {
		c.buf = nil
	}
	c.writing = false
	if len(c.s.queue) > 0 {
		c.s.wakeWriter()
	}
	return true
}

func (c *conn) read() {
	for {
		b, err := readPacket(c.r, c.s.cfg.MaxPacket)
		if err == nil || errors.Is(err, ErrTooLarge) {
			err = c.handle(b, err)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// readPacket reads one packet. If it has more than limit bytes, readPacket reads it to its end, but
// returns only its header, with ErrTooLarge.
func readPacket(r *bufio.Reader, limit int) ([]byte, error) {
	const header, step = 16, 64 << 10
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(size[:])))
	if n < 0 {
		return nil, errMalformed
	}
	if n > limit && n > header {
		b := make([]byte, header)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		if _, err := io.CopyN(io.Discard, r, int64(n-header)); err != nil {
			return nil, err
		}
		return b, ErrTooLarge
	}
	// The length may be wrong: memory is allocated as the bytes arrive.
	b := make([]byte, min(n, step))
	for have := 0; ; {
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			return nil, err
		}
		if have = len(b); have == n {
			return b, nil
		}
		b = append(b, make([]byte, min(n-have, have))...)
	}
}

// handle processes a packet. tooLarge means that all but its header was discarded. An error ends
// the connection.
func (c *conn) handle(b []byte, tooLarge error) error {
	s, d := c.s, decoder{b: b}
	h := d.header()
	if d.err != nil {
		return d.err
	}
	s.mu.Lock()
	if s.conn != c {
		s.mu.Unlock()
		return ErrConnectionLoss
	}
	c.lastRead = time.Now()
	switch h.xid {
	case xidEvent:
		e := d.event()
		var all []delivery
		if d.err == nil && tooLarge == nil {
			all = s.watches.fire(e)
		}
		tree := s.tree
		s.mu.Unlock()
		if tree != nil && d.err == nil && tooLarge == nil {
			tree(e.Path)
		}
		s.deliver(all)
		return errors.Join(d.err, tooLarge)
	case xidSetWatches:
		s.mu.Unlock()
		if h.code != 0 {
			return fmt.Errorf("set watches: %w", h.code)
		}
		return nil
	}
	if len(c.inflight) == 0 || c.inflight[0].xid != h.xid {
		s.mu.Unlock()
		return fmt.Errorf("an answer to no request (exchange %d): %w", h.xid, errMalformed)
	}
	call := c.inflight[0]
	c.inflight[0] = nil
	c.inflight = c.inflight[1:]
	s.answered(call, h, d.b, tooLarge)
	s.mu.Unlock()
	switch h.code {
	case ErrSessionExpired:
		s.end(ErrSessionExpired)
		return h.code
	case ErrSessionMoved:
		return h.code
	}
	return nil
}

// answered finishes a call. The caller holds the session's mutex.
func (s *Session) answered(c *call, h replyHeader, body []byte, tooLarge error) {
	if h.zxid > 0 {
		s.lastZxid = h.zxid
	}
	switch h.code {
	case ErrSessionExpired, ErrSessionMoved, ErrUnknownSession, ErrThrottled:
	default:
		s.proof.answered(c.proving, s.now(), c.op.fromLeader() && h.code != ErrUnimplemented, s.timeout)
	}
	s.finishWatch(c)
	if c.watch != nil {
		s.watchAnswered(c, h.code, tooLarge == nil)
	}
	c.hdr, c.body = h, body
	if h.code != 0 {
		c.finish(h.code)
	} else {
		c.finish(tooLarge)
	}
}

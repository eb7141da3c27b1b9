package zk

import (
	"context"
	"encoding/binary"
	"slices"
	"time"
)

// call is a request on its way. The session's mutex guards its fields until done is closed; after
// that they do not change.
type call struct {
	op        opcode
	e         encoder // the packet; the writer fills in xid
	watch     *Watch  // registered if the answer confirms it
	sent      bool
	abandoned bool // nobody waits for the answer
	sentAt    time.Time
	proving   time.Time // sentAt in the time of Session.now
	xid       int32
	done      chan struct{}
	hdr       replyHeader
	body      []byte // of the answer
	err       error
}

// newCall begins a request whose body has about size bytes.
func newCall(op opcode, size int) *call {
	c := &call{op: op, e: newPacket(size + 8), done: make(chan struct{})}
	c.e.int32(0)
	c.e.int32(int32(op))
	return c
}

// pathCall is a request that begins with a path.
func pathCall(op opcode, path string, more int) *call {
	c := newCall(op, len(path)+4+more)
	c.e.string(path)
	return c
}

func syncCall(path string) *call { return pathCall(opSync, path, 0) }

func (c *call) finish(err error) {
	c.err = err
	close(c.done)
}

// packet returns the finished packet for exchange xid of a connection.
func (c *call) packet(xid int32) []byte {
	c.xid = xid
	binary.BigEndian.PutUint32(c.e.b[4:], uint32(xid))
	return c.e.finish()
}

// submit puts calls in the queue, or refuses them. The caller holds the session's mutex, and calls
// wakeWriter afterwards.
func (s *Session) submit(calls ...*call) {
	for _, c := range calls {
		switch {
		case s.cause != nil:
			c.finish(notSent(s.cause))
			continue
		case s.closing:
			c.finish(notSent(ErrClosed))
			continue
		case len(c.e.b) > s.cfg.MaxPacket:
			c.finish(notSent(ErrTooLarge))
			continue
		}
		if c.watch != nil {
			s.watches.pending[c.watch.group()]++
		}
		s.queue = append(s.queue, c)
	}
}

// wakeWriter makes the connection's writer send the queue.
func (s *Session) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wait returns when c is done or ctx ends, whichever comes first.
func (s *Session) wait(ctx context.Context, c *call) (*call, error) {
	select {
	case <-c.done:
		return c, c.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.done:
		return c, c.err
	default:
	}
	if c.sent {
		c.abandoned = true
		return c, uncertain(context.Cause(ctx))
	}
	if i := slices.Index(s.queue, c); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.finishWatch(c)
	c.finish(notSent(context.Cause(ctx)))
	return c, c.err
}

// finishWatch ends c's entry among the pending watches. The caller holds the session's mutex.
func (s *Session) finishWatch(c *call) {
	if c.watch == nil {
		return
	}
	g := c.watch.group()
	if s.watches.pending[g]--; s.watches.pending[g] <= 0 {
		delete(s.watches.pending, g)
	}
}

// do carries out one request.
func (s *Session) do(ctx context.Context, what, path string, c *call) (decoder, error) {
	if err := s.begin(ctx, path, c); err != nil {
		return decoder{}, &opError{what, path, err}
	}
	if _, err := s.wait(ctx, c); err != nil {
		return decoder{}, &opError{what, path, err}
	}
	return decoder{b: c.body}, nil
}

// begin submits calls for path together, unless ctx has ended already.
func (s *Session) begin(ctx context.Context, path string, calls ...*call) error {
	if err := checkPath(path); err != nil {
		return notSent(err)
	}
	if ctx.Err() != nil {
		return notSent(context.Cause(ctx))
	}
	s.mu.Lock()
	s.submit(calls...)
	c := s.conn
	// With nothing in flight the socket has room for a few bytes: a write here cannot block, and
	// saves waking the writer.
	if c == nil || c.writing || len(c.inflight) > 0 || s.queued() > inline {
		s.wakeWriter()
		s.mu.Unlock()
		return nil
	}
	c.writing = true
	c.buf = c.drain(c.buf[:0])
	s.mu.Unlock()
	c.flush(c.buf)
	return nil
}

// inline is how many bytes a caller may write itself.
const inline = 4 << 10

// queued returns how many bytes are in the queue.
func (s *Session) queued() (n int) {
	for _, c := range s.queue {
		n += len(c.e.b)
	}
	return n
}

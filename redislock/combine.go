package redislock

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A combiner runs one of the fast-path scripts for many goroutines. While few calls are under way,
// each gets its own exchange. Further calls wait and share one, so a busy process sends fewer
// requests. A shared exchange begins when another one ends, when enough calls wait, or after a
// moment. So an exchange that takes long delays calls outside it only if atOnce of them do.
type combiner struct {
	conn   *exchanger
	script *Script
	single bool     // never combine: the keys may be on different nodes
	sure   *Backend // set if replicas have to confirm the calls

	mu    sync.Mutex
	busy  int // exchanges under way
	calls int // in them
	queue []*part
	timer *time.Timer // calls late
	armed bool        // the timer is running
	old   int         // calls in the queue, at its head, that were there when the timer was started
}

// part is a call that waits for a shared exchange.
type part struct {
	call     *call
	patience time.Duration // how long replicas are waited for
	answer   chan Result
	answered bool // its exchange has answered
	left     bool // its caller has returned
	of       requester
}

const (
	atOnce    = 4                    // exchanges under way
	few       = 8                    // calls in them, from which further calls share an exchange
	enough    = 16                   // calls that wait, from which another exchange begins
	moment    = 2 * time.Millisecond // how long a call waits for others; at most twice as long
	mostParts = 32                   // calls in one exchange: a script blocks the server
	sharedFor = 10 * time.Second     // bounds a shared exchange; each caller has its own bound
)

// run is Backend.runFor, or Backend.sure. It may combine the call with others.
func (m *combiner) run(ctx context.Context, patience time.Duration, c *call, of requester) (Value, error) {
	c.done()
	m.mu.Lock()
	if m.single || m.busy < atOnce && m.calls < few {
		m.busy++
		m.calls++
		m.mu.Unlock()
		defer m.ended() // also if the client panics: its callers may recover
		if m.sure != nil {
			return m.sure.sure(ctx, patience, m.script, c, of)
		}
		v, abandoned, err := m.conn.exchange(ctx, m.script, c, of)
		if !abandoned {
			c.free()
		}
		return v, err
	}
	p := newPart()
	p.call, p.patience, p.of = c, patience, of
	m.queue = append(m.queue, p)
	switch {
	case m.busy == atOnce: // the next one that ends takes p along
	case len(m.queue) >= enough:
		m.busy++
		go m.share(m.cut())
	case !m.armed:
		m.arm()
	}
	m.mu.Unlock()
	select {
	case r := <-p.answer:
		p.free()
		return r.Value, r.Err
	case <-ctx.Done():
		switch waiting, answered := m.withdraw(p); {
		case waiting:
			return Value{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		case answered:
			r := <-p.answer
			p.free()
			return r.Value, r.Err
		}
		return Value{}, noAnswer(ctx)
	}
}

// ended notes that the exchange of one call has ended.
func (m *combiner) ended() {
	if parts := m.next(1); parts != nil {
		go m.share(parts)
	}
}

// next notes that an exchange of so many calls has ended, and takes the parts of the next one from
// the queue. If there are none, it counts one exchange less as under way.
func (m *combiner) next(calls int) []*part {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls -= calls
	if len(m.queue) == 0 {
		m.busy--
		m.queue = nil
		return nil
	}
	return m.cut()
}

// arm starts the timer. A timer for each call would cost more than its exchange. Called with m.mu
// held, and calls in the queue.
func (m *combiner) arm() {
	m.armed, m.old = true, len(m.queue)
	if m.timer == nil {
		m.timer = time.AfterFunc(moment, m.late)
		return
	}
	m.timer.Reset(moment)
}

// late begins an exchange if a call in the queue has waited since the timer was started.
func (m *combiner) late() {
	var parts []*part
	m.mu.Lock()
	m.armed = false
	switch {
	case m.busy == atOnce || len(m.queue) == 0: // see run
	case m.old > 0: // all that wait fit into one exchange
		m.busy++
		parts = m.cut()
	default:
		m.arm()
	}
	m.mu.Unlock()
	m.share(parts)
}

// cut takes the parts of an exchange from the queue. Called with m.mu held.
func (m *combiner) cut() []*part {
	n := min(len(m.queue), mostParts)
	m.calls += n
	m.old = max(m.old-n, 0)
	parts := m.queue[:n:n]
	m.queue = m.queue[n:]
	return parts
}

// withdraw takes p out of the queue and reports that it was there. Otherwise p stays with its
// exchange, unless that has answered already.
func (m *combiner) withdraw(p *part) (waiting, answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, q := range m.queue {
		if q == p {
			if i < m.old {
				m.old--
			}
			m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
			return true, false
		}
	}
	if p.answered {
		return false, true
	}
	p.left = true
	p.of.left()
	return false, false
}

// answered notes that the exchange of parts has answered: none of their callers leaves any more.
func (m *combiner) answered(parts []*part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range parts {
		p.answered = true
	}
}

// deliver hands r to the caller of p, which may use p for another call at once.
func (p *part) deliver(r Result) {
	p.call.free()
	if p.left {
		p.of.over(unsent(r.Err))
		return
	}
	p.answer <- r
}

var partPool sync.Pool

func newPart() *part {
	if p, ok := partPool.Get().(*part); ok {
		return p
	}
	return &part{answer: make(chan Result, 1)}
}

// free lets another call use p, whose caller has the answer.
func (p *part) free() {
	*p = part{answer: p.answer}
	partPool.Put(p)
}

// exchange runs the script once. Its callers watch their own contexts. An error does not look as if
// one of these had ended.
func (m *combiner) exchange(patience time.Duration, keys, args []string) (Value, error) {
	none := context.Background()
	ctx, cancel := context.WithTimeout(none, max(sharedFor, patience+waitSlack))
	defer cancel()
	if m.sure == nil {
		v, err := m.conn.Conn.Run(ctx, m.script, keys, args)
		return v, m.conn.answered(none, err)
	}
	r := m.sure.confirm(ctx, patience, []Call{{m.script, keys, args}}, true)[0]
	if _, err := lacking(r.Err); err != nil {
		return r.Value, callers(none, err)
	}
	return r.Value, r.Err
}

// share runs exchanges until the queue is empty.
func (m *combiner) share(parts []*part) {
	var keys, args []string
	for parts != nil {
		keys, args = keys[:0], args[:0]
		patience := parts[0].patience
		for _, p := range parts {
			patience = min(patience, p.patience)
			keys, args = append(keys, p.call.keyList()...), append(args, p.call.argList()...)
		}
		v, err := m.exchange(patience, keys, args)
		short, err := lacking(err)
		if err == nil && len(parts) > 1 && len(v.List) != len(parts) {
			err = strange(v)
		}
		m.answered(parts)
		for i, p := range parts {
			r := Result{v, err}
			if err == nil && len(parts) > 1 {
				r.Value = v.List[i]
			}
			if short != nil {
				r.Err = short
			}
			p.deliver(r)
		}
		runtime.Gosched() // callers that got an answer may be about to call again
		parts = m.next(len(parts))
	}
}

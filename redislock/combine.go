package redislock

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A combiner runs one of the fast-path scripts for many goroutines. While few exchanges are under
// way, each call gets its own. Calls beyond that number share the next exchange. So a busy process
// sends fewer requests, and no call waits for others to join.
type combiner struct {
	conn   *exchanger
	script *Script
	single bool     // never combine: the keys may be on different nodes
	sure   *Backend // set if replicas have to confirm the calls

	mu    sync.Mutex
	busy  int // exchanges under way
	queue []*part
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
	atOnce    = 4                // exchanges under way, before calls are combined
	mostParts = 32               // in one exchange: a script blocks the server
	sharedFor = 10 * time.Second // bounds a shared exchange; each caller has its own bound
)

// run is Backend.runFor, or Backend.sure. It may combine the call with others.
func (m *combiner) run(ctx context.Context, patience time.Duration, c *call, of requester) (v Value, err error) {
	c.done()
	m.mu.Lock()
	if m.busy < atOnce || m.single {
		m.busy++
		m.mu.Unlock()
		if m.sure != nil {
			v, err = m.sure.sure(ctx, patience, m.script, c, of)
		} else {
			var abandoned bool
			if v, abandoned, err = m.conn.exchange(ctx, m.script, c, of); !abandoned {
				c.free()
			}
		}
		if parts := m.next(); parts != nil {
			go m.share(parts)
		}
		return v, err
	}
	p := &part{call: c, patience: patience, answer: make(chan Result, 1), of: of}
	m.queue = append(m.queue, p)
	m.mu.Unlock()
	select {
	case r := <-p.answer:
		return r.Value, r.Err
	case <-ctx.Done():
		switch waiting, answered := m.withdraw(p); {
		case waiting:
			return Value{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		case answered:
			r := <-p.answer
			return r.Value, r.Err
		}
		return Value{}, noAnswer(ctx)
	}
}

// next takes the parts of the next exchange from the queue. If there are none, it counts one
// exchange less as under way.
func (m *combiner) next() []*part {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.queue), mostParts)
	if n == 0 {
		m.busy--
		m.queue = nil
		return nil
	}
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

// answer delivers the answer of p.
func (m *combiner) answer(p *part, r Result) {
	p.call.free()
	m.mu.Lock()
	p.answered = true
	left := p.left
	m.mu.Unlock()
	if left {
		p.of.over(unsent(r.Err))
		return
	}
	p.answer <- r
}

// exchange runs the script once.
func (m *combiner) exchange(patience time.Duration, keys, args []string) (Value, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedFor)
	defer cancel()
	if m.sure == nil {
		return m.conn.Conn.Run(ctx, m.script, keys, args) // its callers watch their own contexts
	}
	r := m.sure.confirm(ctx, patience, []Call{{m.script, keys, args}}, true)[0]
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
		for i, p := range parts {
			r := Result{v, err}
			if err == nil && len(parts) > 1 {
				r.Value = v.List[i]
			}
			if short != nil {
				r.Err = short
			}
			m.answer(p, r)
		}
		runtime.Gosched() // callers that got an answer may be about to call again
		parts = m.next()
	}
}

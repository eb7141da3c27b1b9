package redislock

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A combiner runs one of the lean scripts for many goroutines at once. As long as few of
// them ask, each has an exchange of its own. When there are more, those that come while the
// exchanges are under way share the next: a busy process asks the server less often, and
// nobody waits for company.
type combiner struct {
	conn   *exchanger
	script *Script
	single bool     // nothing is combined: the keys might lie on different nodes
	sure   *Backend // replicas have to confirm it; else nil

	mu    sync.Mutex
	busy  int // exchanges under way
	queue []*part
}

// part is a call that waits for an exchange to share.
type part struct {
	call     *call
	patience time.Duration // with replicas
	answer   chan Result
	answered bool // by its exchange
	left     bool // its caller has gone
	of       requester
}

const (
	atOnce    = 4                // exchanges under way, before calls are combined
	mostParts = 32               // in one exchange: a script keeps the server from others
	sharedFor = 10 * time.Second // bounds a shared exchange; callers have bounds of their own
)

// run is Backend.runFor, or Backend.sure, perhaps together with others.
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
		return Value{}, unheard(ctx)
	}
}

// next takes the parts of the next exchange from the queue; if there are none, an exchange
// less is under way.
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

// withdraw takes p out of the queue, and reports that it waited there. Else p is left to its exchange, unless that has
// answered it already.
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

// answer gives p its answer.
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
		return m.conn.Conn.Run(ctx, m.script, keys, args) // its callers leave by themselves
	}
	r := m.sure.confirm(ctx, patience, []Call{{m.script, keys, args}}, true)[0]
	return r.Value, r.Err
}

// share makes exchanges until the queue is empty.
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
		runtime.Gosched() // those who have their answer may be about to ask again
		parts = m.next()
	}
}

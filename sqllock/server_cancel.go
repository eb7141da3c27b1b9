package sqllock

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

// cancels join the cancellations of one name in one exchange. Each change of a row writes its whole
// queue again, so many single cancellations would take quadratic time. Meanwhile the lock would go
// to requests that have been abandoned.
type cancels struct {
	mu sync.Mutex
	by map[string]*leaving
}

// leaving are the cancellations of one name.
type leaving struct {
	turn  chan struct{} // holds a value while no exchange runs
	next  *departure    // the next batch
	users int
}

// departure is a batch of cancellations in one exchange. One of their callers, the leader, performs
// it.
type departure struct {
	ids  []string
	over chan struct{} // closed after the attempt; then err is valid
	err  error
	left bool // the leader gave up before the attempt
}

// together has f called for id, and for other IDs of the same name that wait meanwhile.
func (c *cancels) together(ctx context.Context, name, id string, f func(ids []string) error) error {
	l := c.attach(name)
	defer c.detach(name, l)
	for {
		d, leads := c.join(l, id)
		if leads {
			return c.lead(ctx, l, d, f)
		}
		select {
		case <-d.over:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
		}
		if !d.left {
			return d.err
		}
	}
}

func (c *cancels) attach(name string) *leaving {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.by[name]
	if l == nil {
		if c.by == nil {
			c.by = map[string]*leaving{}
		}
		l = &leaving{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		c.by[name] = l
	}
	l.users++
	return l
}

func (c *cancels) detach(name string, l *leaving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(c.by, name)
	}
}

// join adds id to the next departure. The first caller leads it.
func (c *cancels) join(l *leaving, id string) (d *departure, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leads = l.next == nil; leads {
		l.next = &departure{over: make(chan struct{})}
	}
	l.next.ids = append(l.next.ids, id)
	return l.next, leads
}

// lead waits for the turn of d, then performs it.
func (c *cancels) lead(ctx context.Context, l *leaving, d *departure, f func(ids []string) error) error {
	defer close(d.over)
	depart := func() []string { // no caller can join after this
		c.mu.Lock()
		defer c.mu.Unlock()
		l.next = nil
		return d.ids
	}
	select {
	case <-l.turn:
	case <-ctx.Done():
		depart()
		d.left, d.err = true, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		return d.err
	}
	defer func() { l.turn <- struct{}{} }()
	d.left = true // in case f panics
	d.err = f(depart())
	d.left = d.err != nil && ctx.Err() != nil
	return d.err
}

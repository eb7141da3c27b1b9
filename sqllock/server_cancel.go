package sqllock

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

// cancels have those who give up one name at a time do it together. Each change of a row writes
// its whole line anew, so a crowd that leaves one by one takes a time that grows with its square, and
// meanwhile the name is granted to some who have given up.
type cancels struct {
	mu sync.Mutex
	by map[string]*leaving
}

// leaving are the cancellations of one name.
type leaving struct {
	turn  chan struct{} // holds a value while none is under way
	next  *departure    // those that go together next
	users int
}

// departure is cancellations that are one exchange. One of their callers does it for all.
type departure struct {
	ids  []string
	over chan struct{} // closed when it has been tried, with this outcome
	err  error
	left bool // who was to do it has given up first
}

// together has f called for id, and for others of the same name that wait meanwhile.
func (c *cancels) together(ctx context.Context, name, id string, f func(ids []string) error) error {
	l := c.enter(name)
	defer c.leave(name, l)
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

func (c *cancels) enter(name string) *leaving {
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

func (c *cancels) leave(name string, l *leaving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(c.by, name)
	}
}

// join adds id to the next departure. The first leads it.
func (c *cancels) join(l *leaving, id string) (d *departure, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leads = l.next == nil; leads {
		l.next = &departure{over: make(chan struct{})}
	}
	l.next.ids = append(l.next.ids, id)
	return l.next, leads
}

// lead waits for the turn of d and does it.
func (c *cancels) lead(ctx context.Context, l *leaving, d *departure, f func(ids []string) error) error {
	defer close(d.over)
	depart := func() []string { // nobody joins any more
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
	d.left = true // should f panic
	d.err = f(depart())
	d.left = d.err != nil && ctx.Err() != nil
	return d.err
}

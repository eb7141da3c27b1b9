package holdfast

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"
)

// The watcher is the one goroutine that ends leases by themselves: those whose time is over
// and those whose session is. It asks nothing of the store, calls nothing of the
// application, and waits for nothing but the clock and the session's end. So no exchange
// that hangs, no session that cannot be opened, and no Logger that blocks delays the end of
// a lease.
//
// It first ends all leases that are overdue: from then on Err, Done and borrowed leases say
// so. Contexts are cancelled next, each by a goroutine of its own, because the cancellation
// calls methods of the application's contexts. At last the log and the
// Observer are told.
//
// A lease is trusted from when an exchange was SENT whose answer proved it, for
// TTL - margin. The store counts the TTL from when it processed the exchange, which is
// later; so the lease ends here before it can end there, as long as the two clocks run at
// the same speed within margin/TTL. Nothing compares the readings of two clocks.
//
//	sent        processed                trusted ends      store may give it away
//	 |--------------|-----------------------------|------------------|----> time
//	 |<------------ TTL - margin ---------------->|                  |
//	                |<-------------------- TTL --------------------->|

// watch runs until the client is closed, which ends all leases.
func (c *Client) watch() {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		s := c.session.Load()
		lost := s.lost
		if s.over() { // the keeper opens another, and wakes the watcher then
			c.endSession(s)
			lost = nil
		}
		now := c.now()
		c.endOverdue(now)
		timer.Reset(c.nextLook(now) - now)
		select {
		case <-timer.C:
		case <-c.look:
		case <-lost:
		case <-c.alive.Done():
			return
		}
	}
}

// nextLook decides when the watcher looks next, and lets newer leases know. Timers stop while
// the machine sleeps: looking once a second bounds how long a lease that lapsed meanwhile
// goes unnoticed after it woke, and how late the keeper renews.
func (c *Client) nextLook(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeAt = forever
	if c.looking = len(c.leases) > 0; c.looking {
		c.wakeAt = min(c.leases[0].until, now+min(c.TTL()/3, time.Second))
	}
	if now >= c.renewAt {
		nudge(c.due)
	}
	return c.wakeAt
}

// enlist puts l under the watcher's eye. Called with c.mu held.
func (c *Client) enlist(l *Lease) {
	heap.Push(&c.leases, l)
	if l.until < c.wakeAt || !c.looking {
		c.looking = true // one nudge is enough
		nudge(c.look)
	}
}

// nudge wakes the goroutine that waits for ch, now or when it waits next.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// ending is a lease that has ended, and what is left to do for it.
type ending struct {
	l        *Lease
	why      *Error
	contexts []contexts
}

// contexts are to be cancelled when a lease ends.
type contexts map[*leaseChild]struct{}

// leaseChild is a context that Lease.Context has made.
type leaseChild struct {
	cancel context.CancelCauseFunc // with all that was derived from it; it calls nothing of the application
	below  context.CancelCauseFunc // of the context between it and its parent
	forget func() bool             // at its parent; nil if that never ends
}

// leave takes the context out of its parent. That calls methods of the parent, which is the
// application's: it may take as long as those do.
func (x *leaseChild) leave() {
	x.below(nil)
	if x.forget != nil {
		x.forget()
	}
}

// endOverdue ends all leases whose time is over.
func (c *Client) endOverdue(now time.Duration) {
	var over []ending
	c.mu.Lock()
	for len(c.leases) > 0 && c.leases[0].until <= now {
		l := c.leases[0]
		why := l.lapse(now)
		over = append(over, ending{l, why, c.finish(l, why, nil)})
	}
	c.mu.Unlock()
	c.mourn(over)
}

// endSession ends what hung on a session that the store has ended.
func (c *Client) endSession(s *session) {
	var over []ending
	c.mu.Lock()
	for _, l := range slices.Clone(c.leases) {
		if l.session == s && l.outer == nil && l.ended == nil {
			why := lost("use", &l.req, ReasonSession)
			over = append(over, ending{l, why, c.finish(l, why, nil)})
		}
	}
	for _, l := range slices.Collect(maps.Keys(c.offers)) {
		if l.session == s {
			c.offerOver(l) // in another way than by adoption
		}
	}
	c.mu.Unlock()
	c.mourn(over)
}

// mourn does what is left to do for leases that were lost, without waiting for it.
func (c *Client) mourn(over []ending) {
	for _, e := range over {
		if e.contexts == nil {
			c.lossTold(e.l, e.why)
			continue
		}
		go func() {
			cancelAll(e.contexts, e.why)
			c.lossTold(e.l, e.why)
		}()
	}
}

func (c *Client) lossTold(l *Lease, why *Error) {
	c.warn("holdfast: lease lost", "lock", l.req.Name, "token", l.token, "reason", string(why.Reason), "err", why.Err)
	if o := c.observer; o != nil && o.Lost != nil {
		c.events.tell(func() { o.Lost(l.req.Name, l.token, why.Reason) })
	}
}

// finish ends l for cause, with all that was borrowed from it, in one step: all of them say
// so from now on. It adds to rest the contexts that the caller then cancels, without c.mu.
// Called with c.mu held; l has not ended before.
func (c *Client) finish(l *Lease, cause *Error, rest []contexts) []contexts {
	l.ended = cause
	if l.index >= 0 {
		heap.Remove(&c.leases, l.index)
	}
	if l.outer != nil {
		delete(l.outer.inner, l)
	}
	if l.done != nil {
		close(l.done)
	} else {
		l.done = closed
	}
	for b := range l.inner {
		rest = c.finish(b, cause, rest)
	}
	l.inner = nil
	if l.cancels != nil {
		rest = append(rest, l.cancels)
		l.cancels = nil
	}
	return rest
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// cancelAll cancels the contexts of leases that have ended, and returns when all are done, those
// included that were derived from them. Parents of the application that block hold up none.
func cancelAll(rest []contexts, cause error) {
	for _, of := range rest {
		for x := range of {
			x.cancel(cause)
		}
	}
	for _, of := range rest {
		for x := range of {
			go x.leave()
		}
	}
}

// end ends l for cause, with all that was borrowed from it. If it had ended before, end
// does nothing and returns why.
func (c *Client) end(l *Lease, cause *Error) (prior *Error) {
	c.mu.Lock()
	if l.ended != nil {
		defer c.mu.Unlock()
		return l.ended
	}
	rest := c.finish(l, cause, nil)
	c.mu.Unlock()
	cancelAll(rest, cause)
	return nil
}

// lose ends a lease that its holder has not released.
func (c *Client) lose(l *Lease, why *Error) {
	if c.end(l, why) == nil {
		c.lossTold(l, why)
	}
}

// leaseHeap orders leases by when they end.
type leaseHeap []*Lease

// own returns those leases that the store knows of: none is borrowed.
func (h leaseHeap) own() []*Lease {
	return slices.DeleteFunc(slices.Clone(h), func(l *Lease) bool { return l.outer != nil })
}

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	n := len(old) - 1
	l := old[n]
	old[n], *h = nil, old[:n]
	l.index = -1
	return l
}

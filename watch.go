package holdfast

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"time"
)

// The watcher is the goroutine that ends expired leases and the leases of sessions that are over.
// It sends nothing to the store, calls nothing of the application, and waits only for the clock and
// for the session's end. So the end of a lease is not delayed by an exchange that hangs, a session
// that cannot be opened, or a Logger that blocks.
//
// It first ends all overdue leases: from then on Err, Done and borrowed leases report that. Then
// goroutines of their own cancel the contexts, because the cancellation calls methods of the
// application's contexts. The log and the Observer come last.
//
// A lease is trusted for TTL - margin from when the exchange that proved it was SENT. The store
// counts the TTL from when it processed that exchange, which is later. So the lease ends here
// before it can end at the store, as long as the speeds of the two clocks differ by no more than
// margin/TTL. Nothing compares the readings of two clocks.
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
		if s.over() { // the keeper opens another, and then wakes the watcher
			c.endSession(s)
			lost = nil
		}
		now := c.now()
		c.endOverdue(now)
		timer.Reset(c.nextLook(now) - now)
		select {
		case <-timer.C:
		case <-c.wakeWatcher:
		case <-lost:
		case <-c.openCtx.Done():
			return
		}
	}
}

// nextLook returns when the watcher looks next, and records that for newer leases. Timers stop
// while the machine sleeps. Looking once a second bounds how long after waking a lease that expired
// during the sleep goes unnoticed, and how late the keeper renews.
func (c *Client) nextLook(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeAt = forever
	if c.looking = len(c.leases) > 0; c.looking {
		c.wakeAt = min(c.leases[0].until, now+min(c.TTL()/3, time.Second))
	}
	if now >= c.renewAt {
		notify(c.wakeKeeper)
	}
	return c.wakeAt
}

// watchLease adds l to the leases that the watcher ends. Called with c.mu held.
func (c *Client) watchLease(l *Lease) {
	heap.Push(&c.leases, l)
	if l.until < c.wakeAt || !c.looking {
		c.looking = true // one notify is enough
		notify(c.wakeWatcher)
	}
}

// notify wakes the goroutine that receives from ch, now or when it receives next.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// endedLease is a lease that has ended, with the contexts that are still to be cancelled.
type endedLease struct {
	l        *Lease
	why      *Error
	contexts []contexts
}

// contexts are cancelled when a lease ends.
type contexts map[*leaseChild]struct{}

// leaseChild is a context that Lease.Context has made.
type leaseChild struct {
	cancel context.CancelCauseFunc // cancels it and its children; calls nothing of the application
	below  context.CancelCauseFunc // ends the context between it and its parent
	stop   func() bool             // stops the AfterFunc of its parent; nil if the parent never ends
}

// detach removes the context from its parent. That calls methods of the application's context, and
// takes as long as they do.
func (x *leaseChild) detach() {
	x.below(nil)
	if x.stop != nil {
		x.stop()
	}
}

// endOverdue ends all leases whose time is over.
func (c *Client) endOverdue(now time.Duration) {
	var over []endedLease
	c.mu.Lock()
	for len(c.leases) > 0 && c.leases[0].until <= now {
		l := c.leases[0]
		why := l.expiryError(now)
		over = append(over, endedLease{l, why, c.endTree(l, why, nil)})
	}
	c.mu.Unlock()
	c.cancelAndReport(over)
}

// endSession ends the leases and offers of a session that the store has ended.
func (c *Client) endSession(s *session) {
	var over []endedLease
	c.mu.Lock()
	for _, l := range slices.Clone(c.leases) {
		if l.session == s && l.outer == nil && l.ended == nil {
			why := lost("use", &l.req, ReasonSession)
			over = append(over, endedLease{l, why, c.endTree(l, why, nil)})
		}
	}
	for _, l := range slices.Collect(maps.Keys(c.offers)) {
		if l.session == s {
			c.endOffer(l) // the grant is gone without an adoption
		}
	}
	c.mu.Unlock()
	c.cancelAndReport(over)
}

// cancelAndReport cancels the contexts of lost leases and reports the losses, without waiting for
// either.
func (c *Client) cancelAndReport(over []endedLease) {
	for _, e := range over {
		if e.contexts == nil {
			c.afterLoss(e.l, e.why)
			continue
		}
		go func() {
			cancelAll(e.contexts, e.why)
			c.afterLoss(e.l, e.why)
		}()
	}
}

// afterLoss follows the end of a lease that was lost, when its contexts have been cancelled. The store
// still has the grant if only MaxHold has ended it.
func (c *Client) afterLoss(l *Lease, why *Error) {
	if why.Reason == ReasonMaxHold {
		own := l
		if l.outer != nil {
			c.mu.Lock()
			own = l.leaveGrant()
			c.mu.Unlock()
		}
		if own != nil {
			own.releaseInBackground()
		}
	}
	c.mu.Lock()
	c.leaveCohort(l)
	c.mu.Unlock()
	if l.kept == idleGrant { // nobody has relied on it
		l.releaseInBackground()
		return
	}
	at := c.coarseNow()
	if !canExplain(why) || !c.work.tryAdd() {
		c.mu.Lock()
		l.stopExplaining()
		c.mu.Unlock()
		c.reportLoss(l, why, at)
		return
	}
	go func() {
		defer c.work.done()
		c.reportLoss(l, c.learnWhy(l, why), at)
	}()
}

// reportLoss reports a loss that the client noticed at at, on coarseNow.
func (c *Client) reportLoss(l *Lease, why *Error, at time.Duration) {
	args := []any{"lock", l.req.Name, "token", l.token, "reason", string(why.Reason), "err", why.Err}
	readers := l.takeReaders()
	if len(readers) > 0 {
		args = append(args, "readers", len(readers))
	}
	if why.Notice != nil {
		args = append(args, "by", why.Notice.String())
	}
	c.warn("holdfast: lease lost", args...)
	if l.kept == sharedGrant {
		for _, r := range readers {
			c.observer.reportLost(r, why, at)
		}
		return
	}
	l.recordEnd(HistoryLost, string(why.Reason), false, at)
	c.observer.reportLost(l, why, at)
}

// endTree ends l for why, with all leases that were borrowed from it, in one step. It adds to
// toCancel the contexts that the caller then cancels, without c.mu. Called with c.mu held; l must
// not have ended before.
func (c *Client) endTree(l *Lease, why *Error, toCancel []contexts) []contexts {
	l.ended = why
	if canExplain(why) && l.outer == nil {
		l.explained = make(chan struct{})
	}
	c.removeHeld(l)
	if l.index >= 0 {
		heap.Remove(&c.leases, l.index)
	}
	if l.outer != nil && l.outer.ended == nil {
		delete(l.outer.inner, l)
	}
	if l.done != nil {
		close(l.done)
	} else {
		l.done = closed
	}
	for b := range l.inner {
		toCancel = c.endTree(b, why, toCancel)
	}
	if l.kept != sharedGrant { // its readers are still to be told
		l.inner = nil
	}
	if l.cancels != nil {
		toCancel = append(toCancel, l.cancels)
		l.cancels = nil
	}
	return toCancel
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// cancelAll cancels the contexts of ended leases and their children, and returns when that is done.
// It does not wait for contexts of the application that block.
func cancelAll(toCancel []contexts, why error) {
	for _, of := range toCancel {
		for x := range of {
			x.cancel(why)
		}
	}
	for _, of := range toCancel {
		for x := range of {
			go x.detach()
		}
	}
}

// end ends l for why, with all leases that were borrowed from it. If l had ended before, end does
// nothing and returns the earlier reason.
func (c *Client) end(l *Lease, why *Error) (prior *Error) {
	c.mu.Lock()
	if l.ended != nil {
		defer c.mu.Unlock()
		return l.ended
	}
	toCancel := c.endTree(l, why, nil)
	c.mu.Unlock()
	cancelAll(toCancel, why)
	return nil
}

// endLost ends a lease that its holder has not released, and reports the loss.
func (c *Client) endLost(l *Lease, why *Error) {
	if c.end(l, why) == nil {
		c.afterLoss(l, why)
	}
}

// leaseHeap orders leases by when they end.
type leaseHeap []*Lease

// own returns the leases that the store knows: those that are not borrowed.
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

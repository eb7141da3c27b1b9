package holdfast

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// How an idle grant of Sticky goes back to the store.

// armIdle makes idleOver look at the time idleTill, or earlier. Called with c.mu held.
func (k *cohort) armIdle(c *Client, now time.Duration) {
	if k.armed && k.looksAt <= k.idleTill {
		return
	}
	k.armed, k.looksAt = true, k.idleTill
	if k.idleTimer == nil {
		k.idleTimer = time.AfterFunc(k.idleTill-now, func() { c.idleOver(k) })
		return
	}
	k.idleTimer.Reset(k.idleTill - now)
}

// stopIdleTimers is for Close, which gives all idle grants back: a timer would keep the client in memory
// until its time came. Called with c.mu held.
func (c *Client) stopIdleTimers() {
	for _, all := range c.stickies {
		for _, k := range all {
			if k.armed {
				k.idleTimer.Stop()
			}
		}
	}
}

// idleOver gives the idle grant of k back, if it has been idle for long enough.
func (c *Client) idleOver(k *cohort) {
	now := c.coarseNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	k.armed = false
	switch leaves := k.leaves(); {
	case !leaves && !k.isIdle():
	case now < k.idleTill:
		k.armIdle(c, now)
	case leaves: // the store is silent
		c.leaveCohort(k.idle)
	default:
		c.leave(k)
	}
}

// leaves reports whether the idle grant of k is on its way back to the store. Called with c.mu held.
func (k *cohort) leaves() bool { return k.leaving != nil && k.idle != nil && k.current == k.idle }

// goesBack reports whether the present grant of k goes back before anybody of k asks. Called with c.mu held.
func (k *cohort) goesBack() bool { return k.full || k.leaves() }

// leave gives the idle grant of k back. Until the store has answered, at most for as long as an exchange
// may take, a call that asked would find its own client's grant in the way: it waits in line, or in
// giveWay. Called with c.mu held.
func (c *Client) leave(k *cohort) {
	l := k.idle
	t := c.newTask(l.req.Name, l.unanswered, l.releaser())
	t.then = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leaveCohort(l)
	}
	left := c.limit()
	if c.tryTask(t) {
		c.endTree(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased}, nil)
		l.recordAbandoned()
		k.leaving = t
	} else { // very many go back at once; this one soon
		left = leaveAgain
	}
	now := c.coarseNow()
	k.idleTill = now + left
	k.armIdle(c, now)
}

// leaveAgain is after which time an idle grant goes back that could not go back at once. There may be very
// many, and each looks so often whether it can.
const leaveAgain = 200 * time.Millisecond

// await waits until t has been answered, as long as an exchange may take.
func (c *Client) await(ctx context.Context, t *task) {
	ctx, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	select {
	case <-t.answered:
	case <-ctx.Done():
	}
}

// endIdle ends the idle lease of k, whose grant the caller gives back. Called with c.mu held.
func (c *Client) endIdle(k *cohort) *Lease {
	l := k.idle
	c.endTree(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased}, nil)
	c.leaveCohort(l)
	l.recordAbandoned()
	return l
}

// usedUp lets the first of the line ask, after the release of l has been answered: see passOn.
func (l *Lease) usedUp() {
	if l.kept != notKept {
		l.c.mu.Lock()
		l.c.leaveCohort(l)
		l.c.mu.Unlock()
	}
}

// giveWay gives idle grants of l's name back before l asks for the name. own is that of its own cohort,
// which has ended; nil: it has none. A call that does not wait in the queue, or is for permits, and so would
// be refused, lets those arrive that are on their way back.
func (c *Client) giveWay(ctx context.Context, l, own *Lease) {
	if own != nil {
		own.giveBack(ctx)
	}
	if c.sticking.Load() == 0 {
		return
	}
	var idle []*Lease
	var leaving []*task
	c.mu.Lock()
	for _, k := range slices.Clone(c.stickies[l.req.Name]) {
		switch {
		case k == l.cohort:
		case k.isIdle():
			idle = append(idle, c.endIdle(k))
		case k.leaving != nil && (!l.req.Wait || l.req.Mode == driver.Permits):
			leaving = append(leaving, k.leaving)
		}
	}
	c.mu.Unlock()
	for _, x := range idle {
		x.giveBack(ctx)
	}
	for _, t := range leaving {
		c.await(ctx, t)
	}
}

// giveBack releases the grant of l, an idle lease that has ended. It waits for one answer. If that leaves
// the release open, it goes on in the background. Unlike releaseAtStore it does not ask why a grant is gone:
// nobody has relied on it, and a call waits.
func (l *Lease) giveBack(ctx context.Context) {
	bctx, cancel := l.c.bound(ctx)
	err := l.releaseOnce(bctx)
	cancel()
	if l.unanswered || err != nil && !driver.IsOver(err) {
		l.releaseInBackground()
	}
}

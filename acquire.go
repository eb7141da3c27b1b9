package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// acquire is the Lock of every primitive: one exchange if the lock is free, else an attempt.
// w is what the Observer gets to know of it; nil: nothing.
func (c *Client) acquire(ctx context.Context, op string, req *driver.Request, o *options, wait bool, w *WaitEnd) (
	*Lease, error) {
	for {
		outer, err := c.carried(ctx, req, o)
		if err != nil {
			return nil, &Error{Op: op, Name: req.Name, Err: err}
		}
		if outer == nil {
			break
		}
		if l, err := outer.lend(op, req, o); err != errGivenBack {
			return l, err
		}
	}
	if ctx.Err() != nil {
		return nil, &Error{Op: op, Name: req.Name, Err: cause(ctx)}
	}
	if !c.work.tryAdd() {
		return nil, &Error{Op: op, Name: req.Name, Err: ErrClosed}
	}
	defer c.work.done()
	l := &Lease{c: c, op: op, req: *req, maxHold: o.maxHold, retry: o.retryFailed, kept: o.kept(), index: -1}
	l.req.Wait = wait && o.every == 0
	limited := ctx // bounds the exchanges as well
	if wait && o.atMost > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.atMost)
		defer cancel()
	}
	called := time.Now()
	began := called.Sub(c.start) + time.Duration(c.slept.Load())
	call := attempt{l: l, o: o, ctx: ctx, limited: limited, mayWait: wait, silentSince: -1, began: began, end: w}
	if holder, err := call.get(); err != nil {
		return nil, &Error{Op: op, Name: req.Name, Holder: holder, Err: err}
	}
	waited := l.since.Sub(called)
	l.recordGrant(HistoryGranted, waited)
	c.addHeld(l)
	l.reportAcquired(ctx, w, waited)
	return l, nil
}

// get returns nil when the call has its lease, or why it has not, with the last holder that it knows.
func (call attempt) get() (*Holder, error) {
	l := call.l
	m, granted, idle := call.enterCohort()
	if granted {
		return nil, nil
	}
	defer l.c.stopAsking(l, nil) // if it still asks; also if the Observer panics
	if m == nil {
		l.c.giveWay(call.limited, l, idle)
		return call.ask()
	}
	call.o.reportWaits()
	holder, err := m.waitInLine()
	switch {
	case err != nil || m.turn.passed:
		return holder, err
	case m.turn.place != nil:
		sent, reply := m.turn.place.take(&m.attempt)
		return m.goOn(sent, reply, nil)
	case m.limited.Err() != nil: // both came at the same time
		return m.gaveUp()
	}
	return m.ask()
}

// ask is get for a call that asks the store with a new request. call is copied if the lock is not
// free, so a call that need not wait costs no allocation.
func (call attempt) ask() (*Holder, error) {
	l, c := call.l, call.l.c
	l.newRequest(c.session.Load())
	sent := c.coarseNow()
	reply, err := l.sendRequest(call.limited)
	if err == nil && reply.Token != 0 && c.startFree(l, call.o, reply.Token, sent-reply.Stale) {
		return nil, nil
	}
	a := new(attempt)
	*a = call
	return a.goOn(sent, reply, err)
}

// goOn is get after the answer to an exchange that was sent at sent.
func (a *attempt) goOn(sent time.Duration, reply driver.Reply, err error) (*Holder, error) {
	err = a.run(sent, reply, err)
	if err == nil {
		return nil, nil
	}
	// The line does not concern itself with the end of this call's own context, of which err may say so
	// before the context does.
	own := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if a.mayWait && a.limited.Err() == nil && !own && a.l.c.isOpen() {
		a.l.c.stopAsking(a.l, err)
	}
	return a.lastHolder(), err
}

// discard ends a lease that no caller has used. Unlike Release it does not keep the name for a
// minimum hold.
func (l *Lease) discard() {
	prior, shared := l.finish()
	if shared != nil {
		shared.recordAbandoned()
		shared.releaseInBackground().awaitBriefly()
	}
	if prior != nil && errors.Is(prior, ErrLost) && l.outer == nil && !l.takenOver {
		l.cancelRequest() // the store may still keep the name
	}
	if prior == nil && l.isOwn() {
		switch {
		case l.outer != nil || l.passOn():
		case l.takenOver: // an earlier holder has used the grant, so a minimum hold stays
			l.releaseInBackground().awaitBriefly()
		default:
			l.cancelRequest()
			l.usedUp()
		}
		if o := l.c.observer; o.observesReleases() {
			l.c.observerCalls.addEnd(func() { o.reportReleased(l, nil) })
		}
	}
}

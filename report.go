package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/timed"
)

// The calls to the Observer. None reads the clock or allocates unless a field wants it.

// modeOf returns the mode of a request.
func modeOf(m driver.Mode) Mode {
	switch m {
	case driver.Shared:
		return ModeShared
	case driver.Permits:
		return ModePermits
	default:
		return ModeExclusive
	}
}

// newWaitEnd begins what the Observer gets to know about a call; nil if it does not want that.
func (c *Client) newWaitEnd(op string, r *driver.Request) *WaitEnd {
	if o := c.observer; o == nil || o.WaitEnded == nil {
		return nil
	}
	return &WaitEnd{Store: c.backend.Name(), Op: op, Name: r.Name, Mode: modeOf(r.Mode), Permits: r.N, Began: time.Now()}
}

// finish notes how the call has ended.
func (w *WaitEnd) finish(err error) {
	w.Outcome, w.Err, w.Waited = outcome(err), err, time.Since(w.Began)
	var e *Error
	if errors.As(err, &e) && e.Holder != nil {
		w.Holder = e.Holder
	}
}

// outcome returns the Outcome of a call for a lock that returned err.
func outcome(err error) Outcome {
	is := func(all ...error) bool {
		for _, e := range all {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return OutcomeGranted
	case is(context.DeadlineExceeded):
		return OutcomeTimeout
	case is(context.Canceled, ErrClosed):
		return OutcomeCanceled
	case is(ErrHeld):
		return OutcomeHeld
	case is(ErrUnavailable, ErrUncertain, ErrDamaged):
		return OutcomeFailed
	case is(ErrDeadlock, ErrKind, ErrInvalid, ErrRefused, ErrGone):
		return OutcomeRefused
	}
	return OutcomeFailed
}

var errObserver = errors.New("the Observer has panicked, or ended the goroutine")

// takeObserved is take for an Observer that wants to know how it ends.
func (k *lock) takeObserved(ctx context.Context, op string, wait bool) (l *Lease, err error) {
	c := k.c
	w := c.newWaitEnd(op, &k.req)
	defer func() {
		if w.Outcome == "" { // a panic, or runtime.Goexit, of Waiting
			w.finish(errObserver)
			c.observerCalls.addEnd(func() { c.observer.WaitEnded(ctx, *w) })
		}
	}()
	l, err = c.acquire(ctx, op, &k.req, &k.opt, wait, w)
	switch {
	case err != nil:
		w.finish(err)
		if wait && w.Outcome == OutcomeHeld {
			w.Outcome = OutcomeTimeout
		}
		c.observer.WaitEnded(ctx, *w)
	case !l.isOwn():
		w.Outcome = OutcomeGranted // borrowed: no wait of its own
	}
	return l, err
}

// reportWait reports a call that has failed. The caller is counted in c.work, but Close does not wait
// for the Observer.
func (c *Client) reportWait(ctx context.Context, w *WaitEnd, err error) {
	if w == nil {
		return
	}
	w.finish(err)
	c.work.done()
	defer c.work.add()
	c.observer.WaitEnded(ctx, *w)
}

// reportWaiting notes a's place in the queue and calls the Observer about it; named: with the last
// holder that the store has named. Close does not wait for the Observer, so the caller is not counted
// in c.work meanwhile.
func (a *attempt) reportWaiting(ahead int, named bool) {
	c := a.l.c
	c.mu.Lock()
	a.inQueue, a.ahead = true, ahead
	c.mu.Unlock()
	if w := a.end; w != nil && w.Queued.IsZero() {
		w.Queued, w.Ahead = time.Now(), ahead
	}
	o := c.observer
	if o == nil || o.Waiting == nil {
		return
	}
	c.work.done()
	defer c.work.add()
	var by *Holder
	if named {
		by = a.lastHolder()
	}
	o.Waiting(Waiting{a.l.req.Name, a.l.req.ID, ahead, by})
}

// reportAcquired calls the Observer about a new lease. If that call panics or ends the goroutine,
// nobody gets the lease. reportAcquired then discards it, because the client would otherwise renew
// it until Close. The caller is counted in c.work.
func (l *Lease) reportAcquired(ctx context.Context, w *WaitEnd, waited time.Duration) {
	o := l.c.observer
	if o == nil || o.Acquired == nil && w == nil {
		return
	}
	returned := false
	l.c.work.done() // Close does not wait for the Observer
	defer func() {
		l.c.work.add() // first, so that Close waits for what follows
		if !returned {
			l.discard()
		}
	}()
	if w != nil {
		mode, n := l.grant() // an adoption learns it from the store
		w.Mode, w.Permits, w.Token, w.ID = modeOf(mode), n, l.token, l.req.ID
		w.finish(nil)
		o.WaitEnded(ctx, *w)
	}
	if o.Acquired != nil {
		o.Acquired(l.req.Name, l.token, waited)
	}
	returned = true
}

// observesReleases reports whether reportReleased has anybody to call.
func (o *Observer) observesReleases() bool {
	return o != nil && (o.Released != nil || o.LeaseEnded != nil)
}

// reportReleased calls the Observer about a lease that has been released. Both fields are called,
// also if the first one panics.
func (o *Observer) reportReleased(l *Lease, err error) {
	if l.isNobodys() || !o.observesReleases() {
		return
	}
	held := time.Since(l.since)
	if o.Released != nil {
		defer func() { o.Released(l.req.Name, l.token, held, err) }()
	}
	if o.LeaseEnded != nil {
		reason := Reason("")
		var e *Error
		if errors.Is(err, ErrLost) && errors.As(err, &e) {
			reason = e.Reason
		}
		o.LeaseEnded(l.leaseEnd(held, reason, err))
	}
}

// reportLost calls the Observer about a lease that was lost at at, on coarseNow, without waiting for it.
func (o *Observer) reportLost(l *Lease, why *Error, at time.Duration) {
	if o == nil {
		return
	}
	if o.Lost != nil {
		l.c.observerCalls.addEnd(func() { o.Lost(l.req.Name, l.token, why.Reason) })
	}
	if o.LeaseEnded != nil && l.isOwn() {
		since := l.since.Sub(l.c.start) + time.Duration(l.c.slept.Load())
		e := l.leaseEnd(max(at-since, 0), why.Reason, why)
		l.c.observerCalls.addEnd(func() { o.LeaseEnded(e) })
	}
}

// reportHandOff calls the Observer about a lease that was handed off, without waiting for it: HandOff
// has to return its ticket.
func (o *Observer) reportHandOff(l *Lease) {
	if o != nil && o.LeaseEnded != nil {
		e := l.leaseEnd(time.Since(l.since), ReasonHandedOff, nil)
		l.c.observerCalls.addEnd(func() { o.LeaseEnded(e) })
	}
}

func (l *Lease) leaseEnd(held time.Duration, reason Reason, err error) LeaseEnd {
	mode, n := l.grant()
	return LeaseEnd{l.c.backend.Name(), l.op, l.req.Name, modeOf(mode), n, l.token, l.req.ID, held, reason, err}
}

// newRenewalEnd begins what the Observer gets to know about a renewal of n leases and places whose
// answer has just come; nil if it does not want that.
func (c *Client) newRenewalEnd(n int, over bool) *renewalReport {
	if o := c.observer; o == nil || o.RenewalEnded == nil || n == 0 || over {
		return nil
	}
	return &renewalReport{RenewalEnd{Store: c.backend.Name(), Number: n}, c.coarseNow()}
}

// renewalReport is a RenewalEnd that is being made.
type renewalReport struct {
	RenewalEnd
	landed time.Duration // when the answer came
}

// renewed notes that the renewal has proved l, before it is extended. Called with c.mu held.
func (r *renewalReport) renewed(l *Lease) {
	if r == nil {
		return
	}
	left := max(l.trusted-r.landed, 0)
	if r.Leases++; r.Leases == 1 || left < r.Left {
		r.Left = left
	}
}

// reportRenewal calls the Observer about a renewal that was sent at sent, without waiting for it.
func (c *Client) reportRenewal(r *renewalReport, sent time.Duration, err error) {
	if r == nil {
		return
	}
	r.Took, r.Err = r.landed-sent, err
	e, o := r.RenewalEnd, c.observer
	c.observerCalls.add(func() { o.RenewalEnded(e) })
}

// reportBreak calls the Observer about a Break.
func (c *Client) reportBreak(name string, token uint64, err error) {
	if c.usable() != nil {
		return
	}
	if o := c.observer; o != nil && o.BreakEnded != nil {
		o.BreakEnded(BreakEnd{c.backend.Name(), name, token, err})
	}
}

// observeExchanges sets c.store: the backend, with its exchanges and those of its sessions reported
// to the Observer if it wants that. The backend itself stays what tells two stores apart.
func (c *Client) observeExchanges() {
	c.store = c.backend
	o := c.observer
	if o == nil || o.Exchanged == nil {
		return
	}
	store := c.backend.Name()
	c.store = timed.New(c.backend, func(op string, took time.Duration, err error) {
		c.exchangeCalls.addUpTo(maxExchanges, func() { o.Exchanged(Exchange{store, op, took, err}) })
	})
}

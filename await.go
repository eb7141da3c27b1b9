package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// wait is a place in the queue, for the keeper.
type wait struct {
	l       *Lease
	proof   time.Duration      // when the last exchange about it was sent that was answered; -1: none; guarded by c.mu
	results chan renewalResult // from renewals; the latest only
}

func newWait(l *Lease) *wait { return &wait{l: l, proof: -1, results: make(chan renewalResult, 1)} }

// prove notes that an exchange that was sent at sent has proved the place. Called with c.mu held.
func (w *wait) prove(sent time.Duration) {
	w.proof = max(w.proof, sent)
	if w.l.asks {
		w.l.cohort.heard = max(w.l.cohort.heard, sent)
	}
}

// renewalResult is the answer of a renewal about a place in the queue. The grant that it reports
// may expire before the result is read. So the proof of that grant counts from sent, and not from a
// later exchange.
type renewalResult struct {
	driver.Change
	sent time.Duration
}

// attempt drives a request that was not granted at once, until it has become a lease or has been
// given up. Nothing else in holdfast waits for another holder.
//
// It alternates between two phases: it asks the store, and it pauses until there is reason to ask
// again. In the queue it pauses until a push or a renewal reports a change. With Poll, or when the
// store does not answer, it pauses for a time.
type attempt struct {
	l       *Lease
	o       *options
	ctx     context.Context // the caller's
	limited context.Context // ends with ctx, or when WaitAtMost has passed
	mayWait bool            // false for TryLock
	wait    *wait
	began   time.Duration // when the first exchange was sent
	end     *WaitEnd      // for the Observer; nil: none
	inQueue bool          // the store has reported a place in the queue; guarded by c.mu
	ahead   int           // how many were before it there, as last heard; guarded by c.mu

	asked  bool           // the store may know of the request
	holder *driver.Holder // the last that the store has named
	named  time.Duration  // when the exchange was sent that named it
	slow   int            // grants in a row that came too late to be relied on
	tries  int            // of Poll
	polls  backoff.Pause  // between them

	refused     bool          // the last answer was that the lock is not free
	silentSince time.Duration // when the first exchange was sent that has failed since the last answer; -1: none
	failure     error         // of the last of these exchanges
	pause       backoff.Pause // before the next exchange
}

// run returns nil when the request has become a lease, or why it was given up. reply and err are
// the answer to the exchange sent at sent.
func (a *attempt) run(sent time.Duration, reply driver.Reply, err error) error {
	c := a.l.c
	a.pause = backoff.Pause{First: firstPause, Most: 500 * time.Millisecond}
	a.wait = newWait(a.l)
	ended := false
	c.startAttempt(a)
	defer func() {
		c.endAttempt(a)
		c.stopRenewing(a.wait)
		if !ended { // the Observer has panicked, or ended the goroutine
			a.l.cancelRequest()
		}
	}()
	for {
		if err == nil && a.l.session.over() { // the answer proves nothing
			reply, err, a.asked = driver.Reply{}, ErrClosed, true
		}
		a.noteAnswer(sent, reply, err)
		a.tellLine()
		held, stop := a.next(sent, reply, err)
		if ended = held || stop != nil; ended {
			if stop != nil && a.asked && !(err == nil && a.bequeath(sent, reply)) {
				a.l.cancelRequest()
			}
			return stop
		}
		if s := c.session.Load(); s != a.l.session {
			if a.asked || a.l.unanswered {
				a.l.recordAbandoned() // its grant ends with its session, but not the minimum hold
			}
			a.restart(s)
		}
		sent = c.coarseNow()
		reply, err = a.l.sendRequest(a.limited)
	}
}

// noteAnswer notes what the answer to an exchange says about the request and about the store.
func (a *attempt) noteAnswer(sent time.Duration, reply driver.Reply, err error) {
	switch {
	case err == nil:
		a.asked = a.asked || reply.Token != 0 || a.l.req.Wait
		a.refused = reply.Token == 0
		a.silentSince, a.failure = -1, nil
		a.pause.Reset()
		if reply.Holder != nil {
			a.holder, a.named = reply.Holder, sent
		}
		a.l.c.noteAnswered(sent)
		return
	case errors.Is(err, driver.ErrSpent):
		if errors.Is(err, ErrUncertain) || a.asked || a.l.unanswered { // the store may know of it
			a.l.abandon(true)
		} else {
			a.l.recordAbandoned() // the store has taken a grant back, or has begun to
		}
		a.restart(a.l.session)
	case errors.Is(err, ErrClosed): // a minimum hold may outlive the session
		a.asked = true
	case leftOpen(err):
		a.asked, a.l.unanswered = true, true
	}
	if a.silentSince < 0 {
		a.silentSince = sent
	}
	if a.limited.Err() == nil { // otherwise the error only reports that limited has ended
		a.failure = err
	}
}

// next decides what follows an exchange, and pauses before another one. held: the request is a
// lease. stop: why to give the request up.
func (a *attempt) next(sent time.Duration, reply driver.Reply, err error) (held bool, stop error) {
	c := a.l.c
	switch {
	case !c.isOpen():
		return false, ErrClosed
	case a.ctx.Err() != nil:
		return false, a.withFailure(cause(a.ctx))
	case err != nil:
		return false, a.failed(sent, explain(a.ctx, err))
	case reply.Token != 0:
		return a.granted(reply.Token, sent-reply.Stale)
	case !a.mayWait:
		return false, ErrHeld
	}
	a.o.reportWaits()
	if a.o.every > 0 {
		return false, a.poll()
	}
	a.reportWaiting(reply.Ahead, true)
	token, proof, stop := a.waitInQueue(sent, reply)
	if stop != nil {
		return false, a.withFailure(stop)
	}
	return token != 0 && c.startLease(a.l, a.o, token, proof), nil
}

// failed pauses after an exchange that failed, or returns why not to try again.
func (a *attempt) failed(sent time.Duration, err error) error {
	c := a.l.c
	patience := c.silentAfter()
	if a.mayWait {
		patience = c.TTL()
	}
	switch {
	case decided(err):
		return err
	case a.limited.Err() != nil:
		// WaitAtMost has passed. If the store reported before that the lock is not free, and only
		// the exchange that WaitAtMost cut short went unanswered, the lock is still not free.
		if a.refused && a.silentSince == sent && c.coarseNow()-sent <= c.silentAfter() {
			return a.timedOutInQueue()
		}
		return asOutage(a.firstFailure(err))
	case c.coarseNow()-max(a.silentSince, a.lastProof()) > patience:
		return asOutage(err)
	}
	pause := a.pause.Next()
	if stop := a.sleepFor(pause/2 + rand.N(pause/2)); stop != ErrHeld {
		return a.withFailure(stop)
	}
	return asOutage(err) // WaitAtMost has passed; nobody knows whether the lock is held
}

// firstFailure returns the failure that came before err, which WaitAtMost has caused.
func (a *attempt) firstFailure(err error) error {
	if a.failure != nil {
		return explain(a.ctx, a.failure)
	}
	return err
}

// withFailure adds the text of the store's last failure to the error of a wait that has ended.
func (a *attempt) withFailure(stop error) error {
	if stop == nil || a.failure == nil {
		return stop
	}
	return fmt.Errorf("%w; the store had failed: %v", stop, a.failure)
}

// granted turns a grant into a lease. A grant that comes too late has to be confirmed by another
// exchange.
func (a *attempt) granted(token uint64, proof time.Duration) (held bool, stop error) {
	c := a.l.c
	a.l.pushed = false
	switch {
	case c.startLease(a.l, a.o, token, proof):
		return true, nil
	case !c.isOpen():
		return false, ErrClosed
	}
	if a.slow++; a.slow > 3 {
		return false, a.l.tooSlow()
	}
	return false, nil
}

func (l *Lease) tooSlow() error {
	return fmt.Errorf("%w: the store takes more than a third of the lease of %v to answer", ErrUnavailable,
		driver.LeaseWithin(l.req.Lease, l.session.ttl))
}

// pollMost is how many times longer than the first the pauses between two tries become.
const pollMost = 8

// poll pauses between two tries outside the queue. The pauses become longer, and differ between
// contenders, so that many of them do not ask at once, again and again.
func (a *attempt) poll() error {
	if a.tries++; a.tries >= a.o.tries {
		return ErrHeld
	}
	if a.tries == 1 {
		a.polls = backoff.Pause{First: a.o.every, Most: pollMost * a.o.every}
	}
	pause := a.polls.Next()
	if stop := a.sleepFor(pause/2 + rand.N(pause/2+1)); stop != nil {
		return stop
	}
	if a.asked { // by a try that was not answered
		a.l.abandon(a.l.unanswered)
	}
	a.l.c.giveWay(a.limited, a.l, nil)
	a.restart(a.l.session)
	return nil
}

// restart gives the request a fresh ID. Renewal results for the old ID no longer apply.
func (a *attempt) restart(s *session) {
	a.l.c.stopRenewing(a.wait)
	a.l.newRequest(s)
	a.wait = newWait(a.l)
	a.asked = false
}

// waitInQueue returns when the lock was handed over (a token, and when the exchange was sent that
// the grant counts from), when there is reason to ask again (token 0), or to stop.
func (a *attempt) waitInQueue(sent time.Duration, reply driver.Reply) (token uint64, proof time.Duration, stop error) {
	c, w := a.l.c, a.wait
	// A place with a lease of its own is renewed by asking again. A renewal would make it longer.
	own := a.l.req.Lease
	c.mu.Lock()
	w.prove(sent - reply.Stale)
	if own == 0 {
		c.waits[w] = struct{}{}
	}
	c.mu.Unlock()
	// The store says when to ask again. Ask as well when no renewal has proved the place for a TTL:
	// it may be gone.
	unproved := c.TTL()
	if own != 0 {
		unproved = own / 3
	}
	askAt := time.Duration(forever)
	if reply.Retry > 0 {
		askAt = c.coarseNow() + reply.Retry + c.spread(reply.Ahead)
	}
	untilAsk := func() time.Duration { return min(askAt, a.lastProof()+unproved) - c.coarseNow() }
	timer := time.NewTimer(untilAsk())
	defer timer.Stop()
	for {
		select {
		case token := <-reply.Wake:
			a.l.pushed = true
			return token, a.lastProof(), nil
		case result := <-w.results:
			switch result.State {
			case driver.Granted:
				a.l.pushed = false
				return result.Token, result.sent, nil
			case driver.Gone:
				return 0, 0, nil
			}
			if result.Retry > 0 {
				askAt = c.coarseNow() + result.Retry + c.spread(result.Ahead)
				timer.Reset(untilAsk())
			}
			a.reportWaiting(result.Ahead, false)
		case <-timer.C:
			if untilAsk() <= 0 {
				return 0, 0, nil
			}
			timer.Reset(untilAsk())
		case <-a.l.session.lost:
			return 0, 0, a.sleepFor(10 * time.Millisecond) // the keeper opens another session
		case <-a.limited.Done():
			return 0, 0, a.timedOutInQueue()
		case <-c.openCtx.Done():
			return 0, 0, ErrClosed
		}
	}
}

// forever is a time that never comes.
const forever = 1 << 62 * time.Nanosecond

// spread keeps waiters from asking all at once when the lease in their way has expired. The first
// to ask makes the store grant the lock, and should be one of the first in the queue.
func (c *Client) spread(ahead int) time.Duration {
	return min(time.Duration(ahead)*time.Millisecond/2, c.TTL()/20) + time.Millisecond
}

// lastProof returns when the last exchange was sent that has proved the place in the queue.
func (a *attempt) lastProof() time.Duration {
	a.l.c.mu.Lock()
	defer a.l.c.mu.Unlock()
	return a.wait.proof
}

// stopRenewing takes w out of the renewals.
func (c *Client) stopRenewing(w *wait) {
	c.mu.Lock()
	delete(c.waits, w)
	c.mu.Unlock()
}

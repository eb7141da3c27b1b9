package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// acquire is every Lock of every primitive: one exchange if the lock is free, else an attempt.
func (c *Client) acquire(ctx context.Context, op string, req *driver.Request, o *options, wait bool) (*Lease, error) {
	outer, err := c.carried(ctx, req, o)
	if err != nil {
		return nil, &Error{Op: op, Name: req.Name, Err: err}
	}
	if outer != nil {
		return outer.lend(op, req, o)
	}
	if ctx.Err() != nil {
		return nil, &Error{Op: op, Name: req.Name, Err: cause(ctx)}
	}
	if !c.work.enter() {
		return nil, &Error{Op: op, Name: req.Name, Err: ErrClosed}
	}
	defer c.work.leave()
	l := &Lease{c: c, req: *req, index: -1}
	l.req.Wait = wait && o.every == 0
	l.enter(c.session.Load())
	limited := ctx // bounds the exchanges as well
	if wait && o.atMost > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.atMost)
		defer cancel()
	}
	sent := c.soonest()
	reply, err := l.ask(limited)
	if err != nil || reply.Token == 0 || !c.admit(l, o, reply.Token, sent-reply.Stale) {
		a := &attempt{l: l, o: o, ctx: ctx, limited: limited, join: wait, silent: -1}
		if err := a.run(sent, reply, err); err != nil {
			return nil, &Error{Op: op, Name: req.Name, Holder: holder(a.holder), Err: err}
		}
	}
	l.announce(l.since.Add(-sent).Sub(c.start))
	return l, nil
}

// enter makes l a new request of session s. A request never outlives its session.
func (l *Lease) enter(s *session) {
	l.session, l.crossed = s, false
	l.number, l.req.ID = l.c.requests.next()
}

// ask is one exchange about l's request.
func (l *Lease) ask(ctx context.Context) (driver.Reply, error) {
	ctx, cancel := l.c.bound(ctx)
	defer cancel()
	return l.session.Acquire(ctx, &l.req)
}

// giveUp ends a lease under which nothing was done. Unlike Release it does not keep the
// name for a minimum hold.
func (l *Lease) giveUp() {
	if l.c.end(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased}) == nil && l.outer == nil {
		l.withdraw()
		if o := l.c.observer; o != nil && o.Released != nil {
			l.c.events.tell(func() { o.released(l, nil) })
		}
	}
}

// admit makes l a lease that stands for a TTL from proof, unless so much of that has
// passed that it might end before its first renewal. The grant has to be confirmed then:
// one handed over to a waiter that has been silent for long would be born expired. A grant
// of a session that is over never becomes a lease.
func (c *Client) admit(l *Lease, o *options, token uint64, proof time.Duration) bool {
	now := c.soonest()
	if now-proof > l.session.ttl/3 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || l.session.over() {
		return false
	}
	l.token, l.since = token, time.Now()
	l.latest = forever
	if o.maxHold > 0 {
		l.latest = now + o.maxHold
	}
	l.extend(proof + l.session.trust())
	c.enlist(l)
	return true
}

// wait is a place in line as the keeper sees it.
type wait struct {
	l     *Lease
	proof time.Duration // when the last exchange about it was sent that was answered; -1: none; c.mu
	news  chan news     // from renewals; the latest only
}

func newWait(l *Lease) *wait { return &wait{l: l, proof: -1, news: make(chan news, 1)} }

// news is what a renewal has told of a place in line. It may lie unread while the grant that
// it tells of runs out, so it proves that grant from when it was sent itself, and no later
// exchange does.
type news struct {
	driver.Change
	sent time.Duration
}

// attempt brings a request to its end that was not granted at once: to a lease, or given up.
// This is the one place where holdfast waits for somebody else.
//
// It goes round in two phases: it asks the store, and it pauses, until there is reason to ask
// again: in line, until a push or a renewal tells of it; between two tries of Poll; or
// because the store does not answer.
type attempt struct {
	l       *Lease
	o       *options
	ctx     context.Context // the caller's
	limited context.Context // ends with it, or when WaitAtMost has passed
	join    bool            // it is to wait
	wait    *wait

	asked  bool           // the store may know of the request
	holder *driver.Holder // the last that the store has named
	slow   int            // grants in a row that came too late to be relied on
	tries  int            // of Poll

	refused bool          // the last answer was that the lock is not free
	silent  time.Duration // when the first exchange was sent that has failed since the last answer; -1: none
	failure error         // of the last of these
	pause   backoff       // before the next
}

// run returns nil when the request has become a lease, or why it was given up. reply and err
// are the answer to the exchange sent at sent.
func (a *attempt) run(sent time.Duration, reply driver.Reply, err error) error {
	c := a.l.c
	a.pause.most = 500 * time.Millisecond
	a.wait = newWait(a.l)
	ended := false
	defer func() {
		c.forget(a.wait)
		if !ended { // the Observer has panicked, or ended the goroutine
			a.l.withdraw()
		}
	}()
	for {
		if err == nil && a.l.session.over() { // an answer that proves nothing
			reply, err, a.asked = driver.Reply{}, ErrClosed, true
		}
		a.note(sent, reply, err)
		held, stop := a.next(sent, reply, err)
		if ended = held || stop != nil; ended {
			if stop != nil && a.asked {
				a.l.withdraw()
			}
			return stop
		}
		if s := c.session.Load(); s != a.l.session {
			a.restart(s)
		}
		sent = c.soonest()
		reply, err = a.l.ask(a.limited)
	}
}

// note keeps what the answer to an exchange says of the request and of the store.
func (a *attempt) note(sent time.Duration, reply driver.Reply, err error) {
	switch {
	case err == nil:
		a.asked = a.asked || reply.Token != 0 || a.l.req.Wait
		a.refused = reply.Token == 0
		a.silent, a.failure, a.pause.last = -1, nil, 0
		if reply.Holder != nil {
			a.holder = reply.Holder
		}
		return
	case errors.Is(err, driver.ErrSpent):
		if errors.Is(err, ErrUncertain) {
			a.l.c.cancel(a.l.session, a.l.req.Name, a.l.req.ID, true)
		}
		a.restart(a.l.session)
	case leftOpen(err):
		a.asked, a.l.crossed = true, true
	}
	if a.silent < 0 {
		a.silent = sent
	}
	if a.limited.Err() == nil { // else it says no more than that
		a.failure = err
	}
}

// next decides what follows an exchange, and pauses before another one: held says that the
// request is a lease, stop why to give it up.
func (a *attempt) next(sent time.Duration, reply driver.Reply, err error) (held bool, stop error) {
	c := a.l.c
	switch {
	case !c.live():
		return false, ErrClosed
	case a.ctx.Err() != nil:
		return false, a.ended(cause(a.ctx))
	case err != nil:
		return false, a.failed(sent, explain(a.ctx, err))
	case reply.Token != 0:
		return a.granted(reply.Token, sent-reply.Stale)
	case !a.join:
		return false, ErrHeld
	case a.o.every > 0:
		return false, a.poll()
	}
	a.l.waiting(reply.Ahead, a.holder)
	token, proof, stop := a.stand(sent, reply)
	if stop != nil {
		return false, a.ended(stop)
	}
	return token != 0 && c.admit(a.l, a.o, token, proof), nil
}

// failed pauses after an exchange that failed, or says why not to try again.
func (a *attempt) failed(sent time.Duration, err error) error {
	c := a.l.c
	patience := c.usual()
	if a.join {
		patience = c.TTL()
	}
	switch {
	case decided(err):
		return err
	case a.limited.Err() != nil:
		// WaitAtMost has passed. Where the store has said that the lock is not free, and all
		// that it left unanswered is the exchange that this has cut short, it still is not.
		if a.refused && a.silent == sent && c.soonest()-sent <= c.usual() {
			return a.lateInLine()
		}
		return outage(a.because(err))
	case c.soonest()-max(a.silent, a.proved()) > patience:
		return outage(err)
	}
	pause := a.pause.next()
	if stop := a.rest(pause/2 + rand.N(pause/2)); stop != ErrHeld {
		return a.ended(stop)
	}
	return outage(err) // WaitAtMost has passed; for all that is known, nobody holds it
}

// because is the failure that came before err, which WaitAtMost has caused.
func (a *attempt) because(err error) error {
	if a.failure != nil {
		return explain(a.ctx, a.failure)
	}
	return err
}

// ended adds to the error of a wait that has ended what was wrong with the store, in words.
func (a *attempt) ended(stop error) error {
	if stop == nil || a.failure == nil {
		return stop
	}
	return fmt.Errorf("%w; the store had failed: %v", stop, a.failure)
}

// granted makes a lease of an answer's grant. One that comes too late is confirmed by an
// answer that is younger.
func (a *attempt) granted(token uint64, proof time.Duration) (held bool, stop error) {
	c := a.l.c
	a.l.pushed = false
	switch {
	case c.admit(a.l, a.o, token, proof):
		return true, nil
	case !c.live():
		return false, ErrClosed
	}
	if a.slow++; a.slow > 3 {
		return false, c.tooSlow()
	}
	return false, nil
}

func (c *Client) tooSlow() error {
	return fmt.Errorf("%w: the store takes more than a third of the TTL of %v to answer", ErrUnavailable, c.TTL())
}

// poll pauses between two tries outside the line.
func (a *attempt) poll() error {
	if a.tries++; a.tries >= a.o.tries {
		return ErrHeld
	}
	if stop := a.rest(a.o.every); stop != nil {
		return stop
	}
	if a.asked { // by a try that was not answered
		a.l.c.cancel(a.l.session, a.l.req.Name, a.l.req.ID, a.l.crossed)
	}
	a.restart(a.l.session)
	return nil
}

// restart gives the request a fresh ID. What renewals tell of the old one, or have told and
// nobody has read, is not about this one.
func (a *attempt) restart(s *session) {
	a.l.c.forget(a.wait)
	a.l.enter(s)
	a.wait = newWait(a.l)
	a.asked = false
}

// stand waits in line until the lock was handed over (a token, and when the exchange was
// sent that the grant counts from), or there is reason to ask again (0), or to stop.
func (a *attempt) stand(sent time.Duration, reply driver.Reply) (token uint64, proof time.Duration, stop error) {
	c, w := a.l.c, a.wait
	c.mu.Lock()
	w.proof = sent - reply.Stale
	c.waits[w] = struct{}{}
	c.mu.Unlock()
	// The store says when to ask again. It is asked as well when renewals have not proven the
	// place for a TTL: is it still there?
	again := time.Duration(forever)
	if reply.Retry > 0 {
		again = c.soonest() + reply.Retry + c.spread(reply.Ahead)
	}
	left := func() time.Duration { return min(again, a.proved()+c.TTL()) - c.soonest() }
	timer := time.NewTimer(left())
	defer timer.Stop()
	for {
		select {
		case token := <-reply.Wake:
			a.l.pushed = true
			return token, a.proved(), nil
		case n := <-w.news:
			switch n.State {
			case driver.Granted:
				a.l.pushed = false
				return n.Token, n.sent, nil
			case driver.Gone:
				return 0, 0, nil
			}
			if n.Retry > 0 {
				again = c.soonest() + n.Retry + c.spread(n.Ahead)
				timer.Reset(left())
			}
			a.l.waiting(n.Ahead, nil)
		case <-timer.C:
			if left() <= 0 {
				return 0, 0, nil
			}
			timer.Reset(left())
		case <-a.l.session.lost:
			return 0, 0, a.rest(10 * time.Millisecond) // the keeper opens another
		case <-a.limited.Done():
			return 0, 0, a.lateInLine()
		case <-c.alive.Done():
			return 0, 0, ErrClosed
		}
	}
}

// forever is a time that never comes.
const forever = 1 << 62 * time.Nanosecond

// spread keeps a line from asking all at once when the lease in its way has run out: whoever
// asks first sets the line in motion, and it should be one of the first in it.
func (c *Client) spread(ahead int) time.Duration {
	return min(time.Duration(ahead)*time.Millisecond/2, c.TTL()/20) + time.Millisecond
}

// proved is when the last exchange was sent that has proven the place in line.
func (a *attempt) proved() time.Duration {
	a.l.c.mu.Lock()
	defer a.l.c.mu.Unlock()
	return a.wait.proof
}

// forget takes w out of the renewals.
func (c *Client) forget(w *wait) {
	c.mu.Lock()
	delete(c.waits, w)
	c.mu.Unlock()
}

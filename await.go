package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// acquire is every Lock of every primitive: one exchange if the lock is free, else await.
func (c *Client) acquire(ctx context.Context, op string, req *driver.Request, o *options, wait bool) (*Lease, error) {
	if o.err != nil {
		return nil, &Error{Op: op, Name: req.Name, Err: o.err}
	}
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
	if err == nil && reply.Token != 0 && c.admit(l, o, reply.Token, sent-reply.Stale) {
		c.observer.acquired(req.Name, l.token, l.since.Add(-sent).Sub(c.start))
		return l, nil
	}
	if !c.begin() {
		l.leave()
		return nil, &Error{Op: op, Name: req.Name, Err: ErrClosed}
	}
	defer c.ends.Done()
	h, err := l.await(ctx, limited, o, wait, sent, reply, err)
	if err != nil {
		return nil, &Error{Op: op, Name: req.Name, Holder: holder(h), Err: err}
	}
	c.observer.acquired(req.Name, l.token, l.since.Add(-sent).Sub(c.start))
	return l, nil
}

// begin counts a slow acquire, unless the client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.ends.Add(1)
	return true
}

// enter makes l a new request of session s. A request never outlives its session.
func (l *Lease) enter(s *session) {
	l.session, l.req.ID = s, l.c.nextID(s)
}

// anew makes l a request that nobody has heard of yet, in place of the one that w waits for. What renewals tell of
// that one, or have told and nobody has read, is not about this one.
func (l *Lease) anew(w *wait, s *session) *wait {
	l.c.forget(w)
	l.enter(s)
	return newWait(l)
}

// ask is one exchange about l's request.
func (l *Lease) ask(ctx context.Context) (driver.Reply, error) {
	ctx, cancel := l.c.bound(ctx)
	defer cancel()
	return l.session.Acquire(ctx, &l.req)
}

// leave gives up l's request, and the grant it may have got. It returns when the store
// has heard that, or soon, while the attempt goes on beside it.
func (l *Lease) leave() {
	const soon = 20 * time.Millisecond
	heard := make(chan struct{})
	l.c.background(func() {
		defer close(heard)
		l.c.insist(func(ctx context.Context) error { return l.session.Cancel(ctx, l.req.Name, l.req.ID) })
	})
	t := time.NewTimer(soon)
	defer t.Stop()
	select {
	case <-heard:
	case <-t.C:
	}
}

// abandon cancels a request that is not used any more, beside everything else.
func (c *Client) abandon(s *session, name, id string) {
	c.background(func() {
		c.insist(func(ctx context.Context) error { return s.Cancel(ctx, name, id) })
	})
}

// giveUp ends a lease under which nothing was done. Unlike Release it does not keep the
// name for a minimum hold.
func (l *Lease) giveUp() {
	if l.c.end(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased}) == nil && l.outer == nil {
		l.leave()
		l.c.observer.released(l.req.Name, l.token, time.Since(l.since), nil)
	}
}

// admit makes l a lease that stands for a TTL from proof, unless so much of that has
// passed that it might end before its first renewal. The grant has to be confirmed then:
// one handed over to a waiter that has been silent for long would be born expired.
func (c *Client) admit(l *Lease, o *options, token uint64, proof time.Duration) bool {
	now := c.soonest()
	if now-proof > l.session.ttl/3 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.session.Load() != l.session {
		return false
	}
	l.token, l.since = token, time.Now()
	l.latest = forever
	if o.maxHold > 0 {
		l.latest = now + o.maxHold
	}
	l.extend(proof + l.session.trust())
	c.watch(l)
	return true
}

// wait is a place in line as the keeper sees it.
type wait struct {
	l     *Lease
	proof time.Duration // when the last exchange about it was sent that was answered; c.mu
	news  chan news     // from renewals; the latest only
}

func newWait(l *Lease) *wait { return &wait{l: l, news: make(chan news, 1)} }

// news is what a renewal has told of a place in line. It may lie unread while the grant that
// it tells of runs out, so it proves that grant from when it was sent itself, and no later
// exchange does.
type news struct {
	driver.Change
	sent time.Duration
}

// await brings l's request to its end: granted, or given up for the error it returns (with
// the holder, if that is known). reply and err are the answer to the exchange sent at
// sent. This is the one place where holdfast waits for somebody else.
func (l *Lease) await(ctx, limited context.Context, o *options, join bool, sent time.Duration, reply driver.Reply, err error) (*driver.Holder, error) {
	c := l.c
	w := newWait(l)
	defer func() { c.forget(w) }()
	var giveUp <-chan struct{}
	if limited != ctx {
		giveUp = limited.Done()
	}
	patience := min(c.limit(), 500*time.Millisecond) // how long a silent store is tried
	if join {
		patience = c.TTL()
	}
	heard := sent             // when the store was last known to answer
	pause := time.Duration(0) // before the next try at a store that does not
	asked := false            // the store may know of the request
	slow := 0                 // grants in a row that came too late to be relied on
	last := reply.Holder
	leave := func(err error) (*driver.Holder, error) {
		if asked {
			l.leave()
		}
		return last, err
	}
	for tries := 1; ; {
		switch {
		case err == nil:
			asked = asked || reply.Token != 0 || l.req.Wait
		case errors.Is(err, driver.ErrSpent):
			if errors.Is(err, ErrUncertain) {
				c.abandon(l.session, l.req.Name, l.req.ID)
			}
			heard = max(heard, w.proved(c))
			w, asked = l.anew(w, l.session), false
		default:
			asked = asked || !final(err) && !errors.Is(err, ErrUnavailable)
		}
		switch {
		case !c.live():
			return leave(ErrClosed)
		case ctx.Err() != nil:
			return leave(cause(ctx))
		case err != nil && decided(err):
			return leave(err)
		case err != nil:
			if c.soonest()-max(heard, w.proved(c)) > patience {
				return leave(outage(err))
			}
			pause = min(max(2*pause, 10*time.Millisecond), 500*time.Millisecond)
			switch stop := c.pause(ctx, giveUp, pause/2+rand.N(pause/2)); stop {
			case nil:
			case ErrHeld: // for all that is known, nobody holds it
				return leave(outage(err))
			default:
				return leave(stop)
			}
		case reply.Token != 0 && c.admit(l, o, reply.Token, sent-reply.Stale):
			return nil, nil
		case reply.Token != 0: // confirm it, with an answer that is younger
			if slow++; slow > 3 {
				return leave(fmt.Errorf("%w: the store takes more than a third of the TTL of %v to answer", ErrUnavailable, c.TTL()))
			}
		case !join:
			return reply.Holder, ErrHeld
		case o.every > 0:
			last = reply.Holder
			if tries++; tries > o.tries {
				return last, ErrHeld
			}
			if stop := c.pause(ctx, giveUp, o.every); stop != nil {
				return leave(stop)
			}
			if asked { // by a try that was not answered
				c.abandon(l.session, l.req.Name, l.req.ID)
			}
			w, asked = l.anew(w, l.session), false
		default:
			if reply.Holder != nil {
				last = reply.Holder
			}
			c.observer.waiting(&l.req, reply.Ahead, last)
			token, proof, stop := l.stand(ctx, w, sent, reply, giveUp)
			if stop != nil {
				return leave(stop)
			}
			if token != 0 && c.admit(l, o, token, proof) {
				return nil, nil
			}
		}
		if s := c.session.Load(); s != l.session {
			w = l.anew(w, s)
		}
		sent = c.soonest()
		if reply, err = l.ask(limited); err == nil {
			heard, pause = sent, 0
		}
	}
}

// stand waits in line until the lock was handed over (a token, and when the exchange was
// sent that the grant counts from), or there is reason to ask again (0), or to stop.
func (l *Lease) stand(ctx context.Context, w *wait, sent time.Duration, reply driver.Reply, giveUp <-chan struct{}) (token uint64, proof time.Duration, stop error) {
	c := l.c
	c.mu.Lock()
	w.proof = sent - reply.Stale
	c.waits[w] = struct{}{}
	c.mu.Unlock()
	retry := time.NewTimer(forever)
	defer retry.Stop()
	if reply.Retry > 0 {
		retry.Reset(reply.Retry + c.spread(reply.Ahead))
	}
	for {
		select {
		case token := <-reply.Wake:
			return token, w.proved(c), nil
		case n := <-w.news:
			switch n.State {
			case driver.Granted:
				return n.Token, n.sent, nil
			case driver.Gone:
				return 0, 0, nil
			}
			if n.Retry > 0 {
				retry.Reset(n.Retry + c.spread(n.Ahead))
			}
			c.observer.waiting(&l.req, n.Ahead, nil)
		case <-retry.C:
			return 0, 0, nil
		case <-l.session.Lost():
			return 0, 0, c.pause(ctx, giveUp, 10*time.Millisecond) // the keeper opens another
		case <-giveUp:
			return 0, 0, late(ctx)
		case <-ctx.Done():
			return 0, 0, cause(ctx)
		case <-c.closing:
			return 0, 0, ErrClosed
		}
	}
}

const forever = 1 << 62 * time.Nanosecond

// spread keeps a line from asking all at once when the lease in its way has run out: whoever
// asks first sets the line in motion, and it should be one of the first in it.
func (c *Client) spread(ahead int) time.Duration {
	return min(time.Duration(ahead)*time.Millisecond/2, c.TTL()/20) + time.Millisecond
}

// pause sleeps for d, or says why not to go on.
func (c *Client) pause(ctx context.Context, giveUp <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-giveUp:
		return late(ctx)
	case <-ctx.Done():
		return cause(ctx)
	case <-c.closing:
		return ErrClosed
	}
}

// late is the error of a wait whose WaitAtMost has passed, or whose context has ended.
func late(ctx context.Context) error {
	if ctx.Err() != nil {
		return cause(ctx)
	}
	return ErrHeld
}

// forget takes w out of the renewals.
func (c *Client) forget(w *wait) {
	c.mu.Lock()
	delete(c.waits, w)
	c.mu.Unlock()
}

func (w *wait) proved(c *Client) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.proof
}

// live reports whether the client is open.
func (c *Client) live() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

// cause is the error of a context that has ended, with what its owner said of it.
func cause(ctx context.Context) error {
	if c := context.Cause(ctx); c != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), c)
	}
	return ctx.Err()
}

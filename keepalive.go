package holdfast

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// The keeper is the goroutine that renews all leases and places in the queue of a client, and that
// opens another session when the store has ended one. The watcher (watch.go) ends leases: a lease
// that the keeper does not renew ends in time, whatever delays the keeper.

// keep runs until the client is closed.
func (c *Client) keep() {
	for c.openCtx.Err() == nil {
		s := c.session.Load()
		c.keepSession(s)
		if s.over() {
			c.endSession(s)
			c.replaceSession(s)
		}
	}
}

// keepSession renews until the session is over or the client is closed. It then cancels the renewal
// under way, and apply ignores its answer.
func (c *Client) keepSession(s *session) {
	ctx, stop := context.WithCancel(c.openCtx)
	defer stop()
	interval := s.ttl / 3
	next := c.now() + interval // when to renew
	renewed := make(chan error, 1)
	running := false
	checked := make(chan struct{}, 1)
	checking := false
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		at := next
		if running {
			at = forever
		}
		c.mu.Lock()
		c.renewAt = at // the watcher wakes the keeper then, too: it notices that the machine slept
		c.mu.Unlock()
		timer.Reset(at - c.now())
		select {
		case <-timer.C:
		case <-c.wakeKeeper:
		case <-c.doubts.wake:
		case <-checked:
			checking = false
		case err := <-renewed:
			if running = false; err != nil { // try again long before the leases expire
				next = min(next, c.now()+min(max(s.ttl/20, 20*time.Millisecond), time.Second))
				c.noteOutage("holdfast: renewal failed; trying again", err)
			} else {
				c.renewalSucceeded()
				c.lookForRequests(ctx)
			}
		case <-s.lost:
			return
		case <-c.openCtx.Done():
			return
		}
		if now := c.now(); now >= next && !running {
			running, next = true, now+interval
			c.work.add()
			go func() {
				defer c.work.done()
				renewed <- c.renew(ctx, s)
			}()
		}
		if checking {
			continue
		}
		if names := c.doubts.take(); len(names) > 0 {
			checking = true
			c.work.add()
			go func() {
				defer c.work.done()
				c.check(ctx, s, names)
				checked <- struct{}{}
			}()
		}
	}
}

// lookForRequests reads what operators ask of the holders of leases, if there are leases: after each
// renewal that has succeeded. It delays no renewal, and makes at most one such exchange at a time.
func (c *Client) lookForRequests(ctx context.Context) {
	c.mu.Lock()
	look := len(c.leases) > 0
	c.mu.Unlock()
	if !look || !c.reading.CompareAndSwap(false, true) {
		return
	}
	c.work.add()
	go func() {
		defer c.work.done()
		defer c.reading.Store(false)
		c.readRequests(ctx)
	}()
}

// renew renews all leases, waits and offers of the session in one exchange.
func (c *Client) renew(ctx context.Context, s *session) error {
	c.mu.Lock()
	r := c.renewalOf(s, nil)
	sent, holds := r.sent, r.holds
	c.renewalSent = sent
	c.mu.Unlock()

	bctx, cancel := context.WithTimeout(ctx, c.limit())
	changes, err := s.Renew(bctx, holds)
	cancel()
	err = explain(ctx, err)
	over := s.over() || ctx.Err() != nil
	c.mu.Lock()
	if c.renewalSent = 0; !over {
		c.renewalErr = err
	}
	if err == nil && !over && len(holds) > 0 {
		c.answered = max(c.answered, sent)
	}
	c.mu.Unlock()
	if o := c.observer; o != nil && o.Renewed != nil && len(holds) > 0 && !over {
		took := c.coarseNow() - sent
		c.observerCalls.add(func() { o.Renewed(len(holds), took, err) })
	}
	end := c.newRenewalEnd(len(holds), over)
	applied := err // err belongs to the call of the Observer
	if err == nil && !over {
		applied = c.apply(s, r, changes, end)
	}
	c.reportRenewal(end, sent, applied)
	return applied
}

// apply processes the store's answer to r.
func (c *Client) apply(s *session, r *renewal, changes []driver.Change, end *renewalReport) error {
	sent, leases, waits, offers := r.sent, r.leases, r.waits, r.offers
	states := make(map[int]driver.Change, len(changes))
	for _, ch := range changes {
		states[ch.Index] = ch
	}
	var gone []endedLease
	var pushed []*Lease // those of gone, and of offers that are gone, that only a push had reported
	var given []*Lease  // the offers that are gone
	unknown := 0
	c.mu.Lock()
	if s.over() { // the answer proves nothing
		c.mu.Unlock()
		return nil
	}
	for i, l := range leases {
		l = l.heir()
		switch ch := states[i]; {
		case l.ended != nil && ch.State == driver.Gone:
			c.leaveCohort(l) // it is being released: its grant is not passed on
		case l.ended != nil:
		case ch.State == driver.Gone:
			why := lost("use", &l.req, ReasonEnded)
			if ch.Missing {
				why.Reason = ReasonForgotten
			}
			gone = append(gone, endedLease{l, why, c.endTree(l, why, nil)})
			if l.pushed {
				pushed = append(pushed, l)
			}
		case ch.State == driver.Unknown:
			unknown++
		default:
			if l.pushed {
				l.pushed = false
				l.recordConfirmed()
			}
			end.renewed(l)
			l.extend(sent + s.trust(driver.LeaseWithin(r.holds[i].Lease, s.ttl)))
		}
	}
	heap.Init(&c.leases)
	for i, w := range waits {
		ch := states[len(leases)+i]
		if ch.State == driver.Unknown {
			unknown++
			continue
		}
		if ch.State != driver.Gone {
			w.prove(sent)
		}
		if ch.State != 0 {
			select { // keep only the latest; only one renewal at a time sends
			case <-w.results:
			default:
			}
			w.results <- renewalResult{ch, sent}
		}
	}
	for i, l := range offers {
		switch states[len(leases)+len(waits)+i].State {
		case driver.Gone:
			c.endOffer(l)
			given = append(given, l)
			if l.pushed {
				pushed = append(pushed, l)
			}
		case driver.Unknown:
			unknown++
		}
	}
	if unknown > 0 && !r.check {
		c.renewalErr = fmt.Errorf("%w: %w (%d of %d)", ErrUncertain, errPartial, unknown, len(r.holds))
	}
	err := c.renewalErr
	c.mu.Unlock()
	for _, l := range pushed {
		l.cancelPushed()
	}
	for _, l := range given {
		l.cancelLate()
	}
	c.cancelAndReport(gone)
	return err
}

var errPartial = errors.New("not everything could be renewed")

// startLease makes l a lease that is trusted for its length from proof, and reports whether it did.
// It does not if more than a third of that has passed since proof, because the lease might then end
// before its first renewal. The caller has to confirm such a grant with another exchange. A
// hand-over to a waiter that had been silent for long is an example; so is the first grant after the
// machine has slept. A lease shorter than the TTL is not renewed, so a hand-over always has to be
// confirmed: it counts from before. A grant of a session that is over never becomes a lease.
func (c *Client) startLease(l *Lease, o *options, token uint64, proof time.Duration) bool {
	length := driver.LeaseWithin(l.req.Lease, l.session.ttl)
	trusted := proof + l.session.trust(length)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noticeSleep()
	now := c.coarseNow()
	if c.closed || l.session.over() {
		return false
	}
	if now-proof > length/3 || l.req.Lease != 0 && l.pushed {
		return false
	}
	l.since, l.latest = time.Now(), forever
	l.startGrant(token, now)
	c.answered = max(c.answered, proof)
	if l.cohort != nil && l.cohort.reads() && l.shareGrant(trusted) {
		return true
	}
	if o.maxHold > 0 {
		l.latest = now + o.maxHold
	}
	if l.req.Lease != 0 {
		l.latest = min(l.latest, trusted)
	}
	l.extend(trusted)
	c.watchLease(l)
	return true
}

// renewal names l to a renewal. If MaxHold ends l within a TTL, the store need not keep it for
// longer. Called with c.mu held.
func (l *Lease) renewal(now time.Duration) driver.Hold {
	h := l.holdID()
	if l.latest != forever && l.c.backend.Kinds().Leases {
		h.Lease = l.session.leaseFor(max(l.latest-now, 0))
	}
	return h
}

// extend moves the end of trust forward, never back. Called with c.mu held; the caller puts the
// heap in order afterwards.
func (l *Lease) extend(trusted time.Duration) {
	l.trusted = max(l.trusted, trusted)
	l.until = min(l.trusted, l.latest)
}

// replaceSession opens another session in place of s, which is over, unless the client is
// closed first.
func (c *Client) replaceSession(s *session) {
	pause := backoff.Pause{First: firstPause, Most: time.Second}
	for {
		err := c.openSession(c.openCtx)
		if err == nil {
			break
		}
		if c.openCtx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.renewalErr = err
		c.mu.Unlock()
		c.noteOutage("holdfast: the session is over and cannot be opened again yet", err)
		if !pause.Wait(c.openCtx) {
			return
		}
	}
	c.mu.Lock()
	c.renewalErr = nil
	c.mu.Unlock()
	c.recovered()
	notify(c.wakeWatcher)
	c.work.add()
	go func() {
		defer c.work.done()
		ctx, cancel := context.WithTimeout(c.workCtx, c.limit())
		defer cancel()
		if err := s.Close(ctx); err != nil {
			c.warn("holdfast: close of a session that is over", "err", explain(c.workCtx, err))
		}
	}()
}

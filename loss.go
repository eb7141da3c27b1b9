package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A lease ends at once when the store reports that its grant is gone. Then the client asks the store
// why: an operator may have broken the grant and said so, or the store may have lost its record. The
// answer goes into the lease's Err, into the log and to the Observer.

// canExplain reports whether the store may know more about a loss.
func canExplain(why *Error) bool {
	return why.Reason == ReasonEnded || why.Reason == ReasonForgotten || why.Reason == ReasonTaken
}

// explainLoss returns why, with the reason that the store gives. It is bounded by a second, or by the
// limit of an exchange if that is shorter.
func (c *Client) explainLoss(l *Lease, why *Error) *Error {
	ctx, cancel := context.WithTimeout(c.workCtx, min(c.limit(), time.Second))
	defer cancel()
	better := *why
	better.coarse = why
	delays := noticeDelays[:]
	if why.Reason == ReasonForgotten {
		delays = delays[:2] // the rest of the second is for WhyMissing
	}
	n := c.noticeOfBreak(ctx, l)
	for i := 0; n == nil && i < len(delays) && c.pause(ctx, delays[i]) == nil; i++ {
		n = c.noticeOfBreak(ctx, l)
	}
	if n != nil {
		better.Reason, better.Notice = ReasonBroken, n
		return &better
	}
	if why.Reason != ReasonForgotten {
		return why
	}
	cause, err := c.store.WhyMissing(ctx, l.req.Name, l.sinceProof())
	if err == nil && cause != driver.CauseUnknown {
		better.Reason = Reason(cause)
		return &better
	}
	return why
}

// noticeDelays are the pauses before the notice of a break is looked for again: an operator adds it
// after the break was answered. The last two are for slow networks and machines.
var noticeDelays = [...]time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond}

// noticeOfBreak returns who has broken l's grant, if the history of its name has it.
func (c *Client) noticeOfBreak(ctx context.Context, l *Lease) *Notice {
	raw, err := c.readHistory(ctx, l.req.Name)
	if err != nil {
		return nil
	}
	for _, e := range slices.Backward(raw) {
		if e.Event == HistoryBroken && e.Token == l.grantToken {
			return &Notice{e.By, e.Reason, e.At}
		}
	}
	return nil
}

// endedFor returns why l has ended: as its outermost lease knows it, if both ended together. Called
// with c.mu held.
func (l *Lease) endedFor() *Error {
	if own := l.own(); own.ended != nil && own.ended.coarse == l.ended {
		return own.ended
	}
	return l.ended
}

// own returns the lease that the store knows: l, or the one that it was borrowed from at last.
func (l *Lease) own() *Lease {
	for l.outer != nil {
		l = l.outer
	}
	return l
}

// sinceProof returns for how long at most nothing has proved l: the record existed then.
func (l *Lease) sinceProof() time.Duration {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.coarseNow() - (l.trusted - l.session.trust(l.session.ttl))
}

// learnWhy replaces the reason of a lease that has just been lost by the one that the store gives,
// and returns it.
func (c *Client) learnWhy(l *Lease, why *Error) *Error {
	better := why
	select {
	case c.explaining <- struct{}{}:
		better = c.explainLoss(l, why)
		<-c.explaining
	default: // very many leases were lost at once
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended == why {
		l.ended = better
	}
	l.stopExplaining()
	return better
}

// stopExplaining ends the wait of awaitExplanation. Called with c.mu held.
func (l *Lease) stopExplaining() {
	if l.explained != nil {
		close(l.explained)
		l.explained = nil
	}
}

// maxExplaining bounds how many losses a client asks about at a time.
const maxExplaining = 64

// Why is Err, except that it waits until the store has said why it ended the lease: for a second at
// most, and only after a loss that the store has reported. See Reason.
func (l *Lease) Why() error {
	err := l.Err()
	if l.usable("use") != nil || !errors.Is(err, ErrLost) {
		return err
	}
	l.awaitExplanation()
	return l.Err()
}

// Why is Err, with the reason of the part that ended first as Lease.Why returns it.
func (m *MultiLease) Why() error {
	if m.usable("use") == nil {
		for _, l := range m.Leases() {
			if l.Err() != nil {
				_ = l.Why()
			}
		}
	}
	return m.Err()
}

// awaitExplanation waits until the reason of a loss is known, at most a second.
func (l *Lease) awaitExplanation() {
	l.c.mu.Lock()
	explained := l.own().explained
	l.c.mu.Unlock()
	if explained == nil {
		return
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-explained:
	case <-timer.C:
	}
}

// lostAtRelease returns the error of a release that the store has answered with a loss.
func (l *Lease) lostAtRelease(reason Reason) error {
	why := lost("release", &l.req, reason)
	if l.c.isOpen() { // Close has no time for it
		why = l.c.learnWhy(l, why)
	}
	l.recordEnd(HistoryLost, string(why.Reason), false, l.c.coarseNow())
	return why
}

// expiryError returns the error of a lease that has expired. Called with c.mu held.
func (l *Lease) expiryError(now time.Duration) *Error {
	if now >= l.latest && l.latest <= l.trusted {
		return lost("use", &l.req, ReasonMaxHold)
	}
	e, c := lost("use", &l.req, ReasonExpired), l.c
	switch {
	case c.renewalErr != nil:
		e.Reason = ReasonUnreachable
		cause := c.renewalErr
		if !decided(cause) {
			cause = asOutage(cause)
		}
		e.Err = fmt.Errorf("%w: the last renewal failed: %w", ErrLost, cause)
	case c.renewalSent != 0 && now-c.renewalSent > c.silentAfter():
		e.Reason = ReasonUnreachable
		e.Err = fmt.Errorf("%w: a renewal sent %v ago was not answered: %w", ErrLost, round(now-c.renewalSent), ErrUncertain)
	}
	return e
}

package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// releaseAtStore releases a lease that was ended locally at ended. It waits for one answer. If the answer
// leaves the release open, it goes on in the background.
func (l *Lease) releaseAtStore(ctx context.Context, ended time.Time) error {
	c := l.c
	sent := c.coarseNow()
	bctx, cancel := c.bound(ctx)
	err := c.repeatChange(bctx, func() error { return l.releaseOnce(bctx) })
	cancel()
	switch {
	case err == nil:
		l.recordRelease(sent)
		l.cancelLate()
		return nil
	case errors.Is(err, driver.ErrTaken):
		l.cancelLate()
		return l.lostAtRelease(ReasonTaken)
	case errors.Is(err, driver.ErrGone):
		l.cancelLate()
		return l.lostAtRelease(ReasonEnded)
	case errors.Is(err, ErrClosed) && c.isOpen(): // the watcher has not noticed yet
		return lost("release", &l.req, ReasonSession)
	case errors.Is(err, ErrRefused): // the store may accept writes again before the lease has expired there
		l.releaseInBackground()
		return &Error{Op: "release", Name: l.req.Name, Err: explain(ctx, err)}
	case final(err):
		return &Error{Op: "release", Name: l.req.Name, Err: explain(ctx, err)}
	}
	l.releaseInBackground()
	err = asOutage(explain(ctx, err))
	if why := l.expiredBefore(ended); why != nil { // the watcher has not noticed: this process was paused
		why.Op, why.Err = "release", fmt.Errorf("%w: %w", why.Err, err)
		return why
	}
	return &Error{Op: "release", Name: l.req.Name, Err: err}
}

// expiredBefore returns the error of l if it had expired by the clock at t, or nil. A sleep of the machine
// after t counts as one before it.
func (l *Lease) expiredBefore(t time.Time) *Error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if at := c.trueNow(now) - now.Sub(t); at >= l.until {
		return l.expiryError(at)
	}
	return nil
}

// recordRelease adds a release to the history, which an exchange sent at sent has made. The client also releases
// what MaxHold has ended: that was a loss, whichever is recorded first.
func (l *Lease) recordRelease(sent time.Duration) {
	event, reason := HistoryReleased, Reason("")
	l.c.mu.Lock()
	confirms := !l.keepsNothing // a cancel does not say whether there was a grant
	if l.ended != nil && l.ended.Reason == ReasonMaxHold {
		event, reason = HistoryLost, ReasonMaxHold
	}
	l.c.mu.Unlock()
	l.recordEnd(event, string(reason), confirms, sent)
}

// releaseOnce is one exchange that releases the grant of l, which has ended.
func (l *Lease) releaseOnce(ctx context.Context) error {
	l.c.mu.Lock()
	keepsNothing := l.keepsNothing
	l.c.mu.Unlock()
	if keepsNothing {
		return l.session.Cancel(ctx, l.req.Name, l.req.ID)
	}
	err := l.session.Release(ctx, l.holdID(), 0)
	if l.pushed && driver.IsOver(err) {
		l.cancelPushed()
	}
	return err
}

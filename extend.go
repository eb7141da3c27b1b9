package holdfast

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Extend makes the lease end d from now, in place of its MaxHold: later or earlier. A lease without
// MaxHold has no end, and Extend sets one; it needs no Extend to go on. If the store has to keep the
// lease for longer than it knows, Extend asks it once, and has an effect only if the store agrees. A
// borrowed lease still ends no later than the one that it was borrowed from.
//
// Errors: ErrLost or ErrReleased if the lease has ended, or the store reports that now; ErrInvalid
// if d is not positive; ErrUnavailable, ErrUncertain or ErrRefused if the store did not agree: the
// lease then ends when it would have ended.
func (l *Lease) Extend(d time.Duration) error {
	const op = "extend"
	if err := l.usable(op); err != nil {
		return err
	}
	c := l.c
	fail := func(err error) error { return &Error{Op: op, Name: l.req.Name, Err: err} }
	if d <= 0 {
		return fail(fmt.Errorf("%w time %v: it must be positive", ErrInvalid, d))
	}
	if c.work.tryAdd() {
		defer c.work.done()
	}
	if err := l.Err(); err != nil { // also notices an expiry
		return l.endedError(op, err.(*Error))
	}
	latest := c.now() + min(d, forever/2)
	c.mu.Lock()
	trusted := l.trusted
	c.mu.Unlock()
	ask := l.outer == nil && latest > trusted
	if ask {
		var err error
		if trusted, err = l.askExtension(latest); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended != nil {
		return l.endedError(op, l.ended)
	}
	l.latest, l.pushed = latest, l.pushed && !ask
	l.extend(trusted)
	if l.index < 0 { // a borrowed lease that had no end of its own
		c.watchLease(l)
		return nil
	}
	heap.Fix(&c.leases, l.index)
	notify(c.wakeWatcher)
	return nil
}

// askExtension makes the store keep l until latest, or for a TTL if that is earlier. It returns for
// how long l can be trusted then.
func (l *Lease) askExtension(latest time.Duration) (trusted time.Duration, err error) {
	const op = "extend"
	c, s := l.c, l.session
	h := l.holdID()
	var change driver.Change
	var sent time.Duration
	ctx, cancel := c.bound(context.Background())
	err = c.repeatRead(ctx, func() (err error) { // the last answer is true: a repeat changes nothing
		sent = c.coarseNow()
		if c.backend.Kinds().Leases {
			h.Lease = s.leaseFor(latest - sent)
		}
		change, err = s.renewOne(ctx, h)
		return err
	})
	cancel()
	gone := ReasonEnded
	switch {
	case err == nil && change.State == 0:
		return sent + s.trust(driver.LeaseWithin(h.Lease, s.ttl)), nil
	case err == nil && change.Missing:
		gone = ReasonForgotten
	case err == nil:
	case errors.Is(err, ErrClosed) && c.isOpen(): // the watcher has not noticed yet
		gone = ReasonSession
	case final(err):
		return 0, &Error{Op: op, Name: l.req.Name, Err: explain(context.Background(), err)}
	default:
		return 0, &Error{Op: op, Name: l.req.Name, Err: asOutage(explain(context.Background(), err))}
	}
	c.mu.Lock()
	has := l.heir() // a release may have passed the grant on meanwhile
	c.mu.Unlock()
	c.endLost(has, lost("use", &has.req, gone))
	l.awaitExplanation()
	if l.pushed {
		l.cancelPushed()
	}
	return 0, l.endedError(op, l.Err().(*Error))
}

// renewOne renews one grant. The State of the Change is 0 or Gone.
func (s *session) renewOne(ctx context.Context, h driver.Hold) (driver.Change, error) {
	changes, err := s.Renew(ctx, []driver.Hold{h})
	switch {
	case err != nil || len(changes) == 0:
		return driver.Change{}, err
	case changes[0].State == driver.Unknown:
		return driver.Change{}, fmt.Errorf("%w: %w", ErrUncertain, errPartial)
	}
	return changes[0], nil
}

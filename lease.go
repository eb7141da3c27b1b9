package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Lease is a lock that is held. It renews itself until it ends, exactly once: by Release,
// or by loss. Its methods are safe for concurrent use, and none but Release asks the store.
type Lease struct {
	c       *Client
	session *session
	req     driver.Request
	token   uint64
	since   time.Time
	outer   *Lease        // what it is borrowed from, if it is
	latest  time.Duration // when MaxHold ends it, on c.now; forever without

	// Guarded by c.mu.
	trusted time.Duration                            // valid before this reading of c.now
	until   time.Duration                            // the earlier of trusted and latest; orders the heap
	index   int                                      // in the heap; -1: not there
	ended   *Error                                   // why it ended; nil while it is valid
	done    chan struct{}                            // made when asked for
	cancels map[*context.CancelCauseFunc]func() bool // with what forgets them when their parent ends
	gave    bool                                     // Release has been called
	inner   map[*Lease]struct{}                      // borrowed from this one
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.req.Name }

// Token returns the fencing token of the grant. It is larger than that of every earlier
// grant of the name, so a resource that remembers the highest token it has seen can
// refuse a holder that was overtaken.
func (l *Lease) Token() uint64 { return l.token }

// Err returns nil while the lease may be relied on, and afterwards why it ended: an *Error
// that is ErrReleased or ErrLost. It reads the clock, so it knows of a lapse at once, even
// right after the machine was asleep.
func (l *Lease) Err() error {
	c := l.c
	now := c.now()
	c.mu.Lock()
	if l.ended != nil {
		defer c.mu.Unlock()
		return l.ended
	}
	outer := l.lender()
	late := now >= outer.until || now >= l.until
	c.mu.Unlock()
	if !late {
		return nil
	}
	if now >= outer.until {
		c.lose(outer, outer.lapse(now))
	} else {
		c.lose(l, l.lapse(now))
	}
	return l.Err()
}

// Left returns for how long the lease may be relied on if no further renewal succeeds, and 0
// once it has ended. It reads the clock, as Err does.
func (l *Lease) Left() time.Duration {
	c := l.c
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended != nil {
		return 0
	}
	return max(0, min(l.until, l.lender().until)-now)
}

// Done is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended != nil {
			close(l.done)
		}
	}
	return l.done
}

// Context returns a child of parent that ends with the lease; context.Cause then is the
// lease's Err. It carries the lease: see Token, ErrDeadlock and Reentrant.
func (l *Lease) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(&leaseContext{parent, l})
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.ended != nil {
		cancel(l.ended)
		return ctx
	}
	if l.cancels == nil {
		l.cancels = map[*context.CancelCauseFunc]func() bool{}
	}
	key := &cancel
	l.cancels[key] = context.AfterFunc(parent, func() { // else a long lease would collect them
		l.c.mu.Lock()
		delete(l.cancels, key)
		l.c.mu.Unlock()
	})
	return ctx
}

// Release ends the lease and gives the lock to the next in line. It is bounded by a
// third of the TTL, at most 5 s, and may be deferred: it does not need a live context.
//
// Errors: ErrLost if the lease had been lost before, or the store says so now; ErrReleased
// if it has been released already; ErrUncertain or ErrUnavailable if the store did not
// answer: it is then told again in the background until the lease has run out there.
func (l *Lease) Release() error { return l.release(context.Background()) }

func (l *Lease) release(ctx context.Context) error {
	// Whether its time is over is for the store to say: if it still takes the release, the
	// lock was held all the while.
	c := l.c
	prior := c.end(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased})
	c.mu.Lock()
	first := !l.gave
	l.gave = true
	c.mu.Unlock()
	if prior != nil && prior.Reason == ReasonHandedOff && first {
		return l.takeBack(ctx)
	}
	if prior != nil {
		// A lease that was lost is over here, yet the store may keep the name until its TTL;
		// whoever says that the work is done frees it now.
		if first && errors.Is(prior, ErrLost) && l.outer == nil {
			c.background(func() { c.giveBack(l) })
		}
		return &Error{Op: "release", Name: l.req.Name, Holder: prior.Holder, Reason: prior.Reason, Err: prior.Err}
	}
	if l.outer != nil {
		return nil
	}
	bctx, cancel := c.bound(ctx)
	err := l.session.Release(bctx, l.hold(), 0)
	cancel()
	var out error
	switch {
	case err == nil:
	case errors.Is(err, driver.ErrTaken):
		out = lost("release", &l.req, ReasonTaken)
	case errors.Is(err, driver.ErrGone):
		out = lost("release", &l.req, ReasonExpired)
	case errors.Is(err, ErrClosed) && c.live(): // the keeper has not heard yet
		out = lost("release", &l.req, ReasonSession)
	case final(err):
		out = &Error{Op: "release", Name: l.req.Name, Err: err}
	default:
		c.background(func() { c.giveBack(l) })
		out = &Error{Op: "release", Name: l.req.Name, Err: outage(err)}
	}
	c.observer.released(l.req.Name, l.token, time.Since(l.since), out)
	return out
}

// giveBack releases at the store until the store has heard it or the lease has run out
// there by itself.
func (c *Client) giveBack(l *Lease) {
	c.insist(func(ctx context.Context) error { return l.session.Release(ctx, l.hold(), 0) })
}

func (l *Lease) hold() driver.Hold {
	return driver.Hold{Name: l.req.Name, ID: l.req.ID, Token: l.token}
}

// lender is the lease that the store knows of. Called with c.mu held.
func (l *Lease) lender() *Lease {
	for l.outer != nil {
		l = l.outer
	}
	return l
}

// lapse is the error of a lease whose time is over.
func (l *Lease) lapse(now time.Duration) *Error {
	reason := ReasonExpired
	if now >= l.latest && now < l.trusted {
		reason = ReasonMaxHold
	}
	return lost("use", &l.req, reason)
}

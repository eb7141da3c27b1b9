package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Lease is a lock that is held. It renews itself until it ends, exactly once: by Release,
// or by loss. Its methods are safe for concurrent use, and none but Release and Downgrade
// asks the store. A nil Lease, as a call that failed returns it, holds nothing.
type Lease struct {
	c       *Client
	session *session
	req     driver.Request
	number  uint64 // of the request, among those of the client
	token   uint64
	since   time.Time
	outer   *Lease        // what it is borrowed from, if it is
	latest  time.Duration // when MaxHold ends it, on c.now; forever without
	crossed bool          // an exchange about its request was not answered, and may yet arrive
	pushed  bool          // nobody but a push has told of the grant yet; not written once the lease has ended

	// Guarded by c.mu.
	trusted time.Duration // valid before this reading of c.now
	until   time.Duration // the earlier of trusted and latest; orders the heap
	index   int           // in the heap; -1: not there
	ended   *Error        // why it ended; nil while it is valid
	done    chan struct{} // made when asked for
	cancels contexts
	gave    bool                // Release has been called
	inner   map[*Lease]struct{} // borrowed from this one
}

// Name returns the name of the lock.
func (l *Lease) Name() string {
	l.must("Name")
	return l.req.Name
}

// Token returns the fencing token of the grant. It is larger than that of every earlier
// grant of the name, so a resource that remembers the highest token it has seen can
// refuse a holder that was overtaken.
func (l *Lease) Token() uint64 {
	l.must("Token")
	return l.token
}

// Err returns nil while the lease may be relied on, and afterwards why it ended: an *Error
// that is ErrReleased or ErrLost. It reads the clock, so it knows of a lapse at once, even
// right after the machine was asleep. Where renewals had failed, the error that is ErrLost
// is also that of the last one.
func (l *Lease) Err() error {
	if err := l.made("use"); err != nil {
		return err
	}
	c := l.c
	now := c.now()
	c.mu.Lock()
	if late, why := l.late(now); late != nil {
		rest := c.finish(late, why, nil)
		c.mu.Unlock()
		cancelAll(rest, why)
		c.lossTold(late, why)
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	return nil
}

// late returns what has ended by now and nobody has noticed: l, or the outermost of those
// that it was borrowed from. Called with c.mu held.
func (l *Lease) late(now time.Duration) (over *Lease, why *Error) {
	if l.ended != nil {
		return nil, nil
	}
	for x := l; x != nil; x = x.outer {
		switch {
		case x.outer == nil && x.session.over():
			over, why = x, lost("use", &x.req, ReasonSession)
		case now >= x.until:
			over, why = x, x.lapse(now)
		}
	}
	return over, why
}

// Left returns for how long the lease can be relied on from now, if no renewal succeeds any
// more; 0 if it has ended. It is the time until trust ends, earlier than the store may give
// the lock away, or until MaxHold ends the lease; of a borrowed lease, until the first of
// those that it was borrowed from ends. Time that the machine slept has passed, as for Err.
func (l *Lease) Left() time.Duration {
	if l.made("use") != nil {
		return 0
	}
	now := l.c.now()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if over, _ := l.late(now); l.ended != nil || over != nil {
		return 0
	}
	left := l.until
	for x := l.outer; x != nil; x = x.outer {
		left = min(left, x.until)
	}
	return left - now
}

// Valid reports whether at least d is Left: whether a step that takes no longer than d can
// still be taken under the lock. Ask before a step that cannot be taken back. Once the lease
// has ended it is false, whatever d is.
//
// A process may be paused between any two of its instructions, so it may run some code
// after its lease has ended, and before its context does. Valid makes that less likely; only
// a resource that checks the Token makes it harmless.
func (l *Lease) Valid(d time.Duration) bool {
	left := l.Left()
	return left > 0 && left >= d
}

// Done is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} {
	if l.made("use") != nil {
		return closed
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

// Context returns a child of parent that ends with the lease; context.Cause then is the
// lease's Err. It carries the lease: see Token, ErrDeadlock and Reentrant.
func (l *Lease) Context(parent context.Context) context.Context {
	between, below := context.WithCancelCause(parent)
	ctx, cancel := context.WithCancelCause(&leaseContext{between, l})
	if err := l.made("use"); err != nil {
		cancel(err)
		below(nil)
		return ctx
	}
	c, x := l.c, &leaseChild{cancel: cancel, below: below}
	c.mu.Lock()
	if why := l.ended; why != nil {
		c.mu.Unlock()
		cancel(why)
		below(nil)
		return ctx
	}
	if l.cancels == nil {
		l.cancels = contexts{}
	}
	l.cancels[x] = struct{}{}
	c.mu.Unlock()
	if parent.Done() == nil {
		return ctx
	}
	// Else a long lease would collect them. This calls methods of parent, so not under c.mu.
	forget := context.AfterFunc(parent, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(l.cancels, x)
	})
	c.mu.Lock()
	_, stands := l.cancels[x]
	if stands {
		x.forget = forget
	}
	c.mu.Unlock()
	if !stands {
		forget()
	}
	return ctx
}

// Release ends the lease and gives the lock to the next in line. It is bounded by a
// third of the TTL, at most 5 s, and may be deferred: it does not need a live context.
//
// Errors: ErrLost if the lease had been lost before, or the store says so now; ErrReleased
// if it has been released already; ErrUncertain or ErrUnavailable if the store did not
// answer: it is then told again in the background until the lease has run out there;
// ErrInvalid of a nil Lease. ErrUncertain also if the first answer was lost and the grant is not
// there any more: it was released then, or had been lost before.
func (l *Lease) Release() error {
	if err := l.made("release"); err != nil {
		return err
	}
	told, err := l.release()
	if told {
		l.c.observer.released(l, err) // Close does not wait for the Observer
	}
	return err
}

// release is Release without the Observer, who is to be told where told says so.
func (l *Lease) release() (told bool, err error) {
	// Whether its time is over is for the store to say: if it still takes the release, the
	// lock was held all the while.
	c := l.c
	if c.work.enter() {
		defer c.work.leave()
	}
	prior := c.end(l, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased})
	c.mu.Lock()
	first := !l.gave
	l.gave = true
	c.mu.Unlock()
	switch {
	case prior == nil && l.outer == nil:
		return true, l.giveBack(context.Background())
	case prior == nil:
		return false, nil
	case first && prior.Reason == ReasonHandedOff:
		return false, l.takeBack(context.Background())
	case first && errors.Is(prior, ErrLost) && l.outer == nil:
		// We no longer trust the lease, but the store may hold the name until the TTL. The
		// caller has finished, so free it now.
		l.insistRelease()
	}
	return false, &Error{Op: "release", Name: l.req.Name, Holder: prior.Holder, Reason: prior.Reason, Err: prior.Err}
}

// giveBack releases a lease that has ended here at the store, once, and then in the background.
func (l *Lease) giveBack(ctx context.Context) error {
	c := l.c
	bctx, cancel := c.bound(ctx)
	err := c.change(bctx, func() error { return l.session.Release(bctx, l.hold(), 0) })
	cancel()
	if l.pushed && driver.IsOver(err) {
		l.disown()
	}
	switch {
	case err == nil:
		if l.crossed {
			c.cancel(l.session, l.req.Name, l.req.ID, true)
		}
		return nil
	case errors.Is(err, driver.ErrTaken):
		return lost("release", &l.req, ReasonTaken)
	case errors.Is(err, driver.ErrGone):
		return lost("release", &l.req, ReasonExpired)
	case errors.Is(err, ErrClosed) && c.live(): // the watcher has not heard yet
		return lost("release", &l.req, ReasonSession)
	case errors.Is(err, ErrRefused): // now; it may take writes again before the lease has run out there
		l.insistRelease()
		return &Error{Op: "release", Name: l.req.Name, Err: explain(ctx, err)}
	case final(err):
		return &Error{Op: "release", Name: l.req.Name, Err: explain(ctx, err)}
	}
	l.insistRelease()
	return &Error{Op: "release", Name: l.req.Name, Err: outage(explain(ctx, err))}
}

// insistRelease releases at the store in the background, until the store has heard it or
// the lease has run out there by itself.
func (l *Lease) insistRelease() {
	l.c.insist(l.req.Name, false, func(ctx context.Context) error { return l.session.Release(ctx, l.hold(), 0) })
}

// lapse is the error of a lease whose time is over. Called with c.mu held.
func (l *Lease) lapse(now time.Duration) *Error {
	if now >= l.latest && now < l.trusted {
		return lost("use", &l.req, ReasonMaxHold)
	}
	e, c := lost("use", &l.req, ReasonExpired), l.c
	switch {
	case c.missed != nil:
		cause := c.missed
		if !decided(cause) {
			cause = outage(cause)
		}
		e.Err = fmt.Errorf("%w: the last renewal failed: %w", ErrLost, cause)
	case c.asking != 0 && now-c.asking > c.usual():
		e.Err = fmt.Errorf("%w: a renewal sent %v ago was not answered: %w", ErrLost, round(now-c.asking), ErrUncertain)
	}
	return e
}

// made returns an error for a lease that no call has made.
func (l *Lease) made(op string) error {
	if l == nil || l.c == nil {
		return &Error{Op: op, Err: fmt.Errorf("%w lease: the call that was to make it has returned an error", ErrInvalid)}
	}
	return nil
}

func (l *Lease) must(method string) {
	if err := l.made("use"); err != nil {
		panic(fmt.Sprintf("holdfast: %s of a Lease that is nil or zero: the call that was to make it has returned an error", method))
	}
}

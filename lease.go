package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// How a lease or a request ends. What goes on in the background is a task (background.go).
//
//	                      asks the store      waits                    goes on in the background
//	Release               release             for one answer           if that leaves it open
//	ReleaseNow            cancel              for one answer           if that leaves it open
//	releaseAtStore        release             for one answer           if that leaves it open
//	releaseOffer          release             for one answer           if that leaves it open
//	releaseInBackground   release             no                       yes
//	discard               cancel              20 ms                    yes
//	cancelRequest         cancel              20 ms                    yes
//	cancelPushed          cancel              no                       yes
//	adoption.abort        release             no                       yes
//	Client.end, endLost   no: local only      for contexts to cancel   no
//	finish                no: local only      for contexts to cancel   no
//	Client.stopRenewing   no: local only      no                       no

// Lease is the holder's claim to a grant. It renews itself until it ends, exactly once: by Release,
// or by loss. Its methods are safe for concurrent use. Only Release, ReleaseNow, ReleasePermits,
// Extend and Downgrade wait for the store. A nil Lease, which a failed call returns, holds nothing.
type Lease struct {
	c          *Client
	session    *session
	op         string // of the call that took it
	req        driver.Request
	number     uint64 // the client's count of requests, from which the ID is made
	token      uint64 // of the block of tokens of its grant
	grantToken uint64 // by which the store knows the grant: the last of the block
	since      time.Time
	outer      *Lease        // the lease that this one was borrowed from, or the shared grant; nil: none
	maxHold    time.Duration // of the options; 0: none
	latest     time.Duration // when MaxHold ends it, on c.now; forever without MaxHold
	reducing   sync.Mutex    // held by ReleasePermits
	retry      bool          // RetryFailed of the options
	unanswered bool          // an exchange about its request was not answered, and may still reach the store
	takenOver  bool          // by Adopt or Resume
	pushed     bool          // so far only a push has reported the grant; not written once the lease has ended

	// Guarded by c.mu. The first four are beside the bools above, which keeps a Lease small.
	asks          bool // it is the asker of its cohort; written by others only while it is in the line
	releaseCalled bool
	keepsNothing  bool // ReleaseNow has ended it
	leftGrant     bool // of a reader: it does not share the grant any more
	ticketed      bool // Ticket has named its grant to somebody who may resume it
	kept          kept // by Sticky; not written once the lease has begun

	trusted   time.Duration // valid before this reading of c.now
	until     time.Duration // the earlier of trusted and latest; orders the heap
	index     int           // in the heap; -1: not in it
	cohort    *cohort       // whose calls may get the lock from it; nil: none
	ended     *Error        // why it ended; nil while it is valid
	done      chan struct{} // made on demand
	cancels   contexts
	inner     map[*Lease]struct{}      // leases that were borrowed from this one, or share its grant
	readers   int                      // of a shared grant: those that have not left it
	notice    *Notice                  // who has asked for its release; nil: nobody
	onRevoke  map[*revocation]struct{} // told when somebody asks
	granted   *grantEntry              // of its grant, for the history; nil: none, or the history has its end
	explained chan struct{}            // closed when the store has said why it was lost; nil: not asked
}

// Name returns the name of the lock.
func (l *Lease) Name() string {
	l.mustBeUsable("Name")
	return l.req.Name
}

// Token returns the fencing token of the grant. It is larger than that of every earlier grant of
// the name, so a resource that remembers the highest token it has seen can refuse a stale holder. Readers
// of one client may share a grant and its token: see RWMutex.
func (l *Lease) Token() uint64 {
	l.mustBeUsable("Token")
	return l.token
}

// Err returns nil while the lease may be relied on. Afterwards it returns why the lease ended: an
// *Error that is ErrReleased or ErrLost. It reads the clock, so it reports an expiry at once, even
// right after the machine slept. If renewals had failed, the ErrLost also wraps the error of the
// last one.
func (l *Lease) Err() error {
	if err := l.usable("use"); err != nil {
		return err
	}
	c := l.c
	now := c.now()
	c.mu.Lock()
	if ended, why := l.findEnded(now); ended != nil {
		toCancel := c.endTree(ended, why, nil)
		c.mu.Unlock()
		cancelAll(toCancel, why)
		c.afterLoss(ended, why)
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if l.ended != nil {
		return l.endedFor()
	}
	return nil
}

// findEnded returns the lease that has ended by now without having been marked as ended: l, or the
// outermost of those that it was borrowed from. Called with c.mu held.
func (l *Lease) findEnded(now time.Duration) (ended *Lease, why *Error) {
	if l.ended != nil {
		return nil, nil
	}
	for x := l; x != nil; x = x.outer {
		switch {
		case x.outer == nil && x.session.over():
			ended, why = x, lost("use", &x.req, ReasonSession)
		case now >= x.until:
			ended, why = x, x.expiryError(now)
		}
	}
	return ended, why
}

// Left returns for how long the lease can still be relied on if no further renewal succeeds; 0 if
// it has ended. That is the time until the client stops trusting it, which is earlier than the
// store may give the lock away, or until MaxHold ends it. A borrowed lease has no more left than
// those that it was borrowed from. Time that the machine slept counts, as for Err.
func (l *Lease) Left() time.Duration {
	if l.usable("use") != nil {
		return 0
	}
	now := l.c.now()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if ended, _ := l.findEnded(now); l.ended != nil || ended != nil {
		return 0
	}
	left := l.until
	for x := l.outer; x != nil; x = x.outer {
		left = min(left, x.until)
	}
	return left - now
}

// Valid reports whether at least d is Left: whether a step that takes no longer than d can still be
// taken under the lock. Ask before a step that cannot be undone. Once the lease has ended, Valid is
// false for every d.
//
// A process may be paused between any two instructions. So it may run some code after its lease has
// ended and before its context ends. Valid makes that less likely; only a resource that checks the
// Token makes it harmless.
func (l *Lease) Valid(d time.Duration) bool {
	left := l.Left()
	return left > 0 && left >= d
}

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} {
	if l.usable("use") != nil {
		return closed
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

// Context returns a child of parent that ends with the lease; context.Cause is then the lease's
// Err. It carries the lease: see Token, ErrDeadlock and Reentrant.
func (l *Lease) Context(parent context.Context) context.Context {
	between, below := context.WithCancelCause(parent)
	ctx, cancel := context.WithCancelCause(&leaseContext{Context: between, lease: l})
	if err := l.usable("use"); err != nil {
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
	// When parent ends first, drop the entry: a long lease would otherwise collect them. AfterFunc
	// calls methods of parent, so it must not run under c.mu.
	stop := context.AfterFunc(parent, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(l.cancels, x)
	})
	c.mu.Lock()
	_, kept := l.cancels[x]
	if kept {
		x.stop = stop
	}
	c.mu.Unlock()
	if !kept {
		stop()
	}
	return ctx
}

// Release ends the lease and hands the lock to the next waiter. It takes at most a third of the
// TTL, and at most 5 s. It may be deferred: it needs no live context.
//
// Errors: ErrLost if the lease had been lost before, or the store reports that now. ErrReleased if
// it has been released already. ErrUncertain or ErrUnavailable if the store did not answer: the
// client then repeats the release in the background until the lease has expired at the store.
// ErrUncertain also if the first answer was lost and the grant no longer exists: that release ended
// it, or it had been lost before. Both come with ErrLost if the lease had ended by the client's
// clock before. ErrInvalid for a nil Lease.
func (l *Lease) Release() error {
	if err := l.usable("release"); err != nil {
		return err
	}
	return l.releaseAndReport(false)
}

// ReleaseNow is Release, except that it does not keep the name for a minimum hold (MinHold): the
// next holder may have it at once. It is for work that failed and that somebody may do again.
//
// A store does not say whether that ended a grant. So ReleaseNow reports only a loss that the
// client knows of. A name whose lease has expired at the store is kept.
func (l *Lease) ReleaseNow() error {
	if err := l.usable("release"); err != nil {
		return err
	}
	return l.releaseAndReport(true)
}

func (l *Lease) releaseAndReport(now bool) error {
	report, err := l.release(now)
	if report {
		l.c.observer.reportReleased(l, err) // Close does not wait for the Observer
	}
	return err
}

// release is Release, or ReleaseNow, without the call to the Observer; report says whether to make
// that call.
func (l *Lease) release(now bool) (report bool, err error) {
	// The store decides whether the lease has expired: if it still accepts the release, nobody else
	// has had the lock.
	c := l.c
	if c.work.tryAdd() {
		defer c.work.done()
	}
	if l.kept != notKept && l.releaseIdle() {
		return true, nil
	}
	l.noticeExpiry()
	if now {
		_ = l.Err() // a cancel does not say whether there was a grant, so the clock does
	}
	prior, shared := l.finish()
	c.mu.Lock()
	first := !l.releaseCalled
	l.releaseCalled = true
	l.keepsNothing = l.keepsNothing || first && now
	c.mu.Unlock()
	switch {
	case prior == nil && l.passOn():
		return true, nil
	case now && l.outer == nil &&
		(prior == nil || first && (errors.Is(prior, ErrLost) || prior.Reason == ReasonHandedOff)):
		l.recordAbandoned() // the store may hear of that late; an adopter has a request of its own
	}
	switch {
	case prior == nil && l.outer == nil:
		err := l.releaseAtStore(context.Background(), time.Now())
		l.usedUp()
		return true, err
	case prior == nil && shared != nil:
		return true, shared.releaseAtStore(context.Background(), time.Now())
	case prior == nil:
		return l.shared() != nil, nil
	case first && prior.Reason == ReasonHandedOff:
		if g := l.shared(); g != nil {
			l = g
		}
		return false, l.releaseOffer(context.Background())
	case first && errors.Is(prior, ErrLost) && l.outer == nil:
		// We no longer trust the lease, but the store may hold the name until the TTL. The
		// caller has finished, so free it now.
		l.releaseInBackground()
	case shared != nil:
		shared.releaseInBackground()
	}
	if errors.Is(prior, ErrLost) {
		l.awaitExplanation()
		c.mu.Lock()
		prior = l.endedFor()
		c.mu.Unlock()
	}
	return false, &Error{Op: "release", Name: l.req.Name, Holder: prior.Holder, Reason: prior.Reason, Notice: prior.Notice,
		Err: prior.Err}
}

// usable returns an error for a nil or zero Lease.
func (l *Lease) usable(op string) error {
	if l == nil || l.c == nil {
		return &Error{Op: op, Err: fmt.Errorf("%w lease: it is nil or zero, because the call that returned it failed",
			ErrInvalid)}
	}
	return nil
}

func (l *Lease) mustBeUsable(method string) {
	if err := l.usable("use"); err != nil {
		panic(fmt.Sprintf("holdfast: %s of a Lease that is nil or zero, because the call that returned it failed", method))
	}
}

package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Contexts carry leases, for Token and for locks that are taken under them. Go has no goroutine
// IDs, and this needs none: code holds the leases that its context carries.

// leaseContext carries a lease. Compared with context.WithValue it saves allocations.
type leaseContext struct {
	context.Context
	lease      *Lease
	revocation revocation
}

type leaseKey struct{}

func (ctx *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return ctx
	}
	return ctx.Context.Value(key)
}

// leases yields the leases that ctx carries, innermost first.
func leases(ctx context.Context) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for {
			lc, ok := ctx.Value(leaseKey{}).(*leaseContext)
			if !ok || !yield(lc.lease) {
				return
			}
			ctx = lc.Context
		}
	}
}

// Token returns the fencing token of the innermost lease that ctx was made from, by Do or by
// Lease.Context; 0 if there is none.
func Token(ctx context.Context) uint64 {
	for l := range leases(ctx) {
		return l.token
	}
	return 0
}

// TokenOf returns the fencing token of the innermost lease of that name that ctx was made from; 0
// if there is none. It is for contexts that carry several leases, as LockAll's do.
func TokenOf(ctx context.Context, name string) uint64 {
	for l := range leases(ctx) {
		if l.req.Name == name {
			return l.token
		}
	}
	return 0
}

// carried returns the lease in ctx that req can borrow from, or an error if the request would wait
// for itself. It returns nil, nil if no lease in ctx conflicts with req.
func (c *Client) carried(ctx context.Context, req *driver.Request, o *options) (*Lease, error) {
	if ctx.Value(leaseKey{}) == nil {
		return nil, nil
	}
	permits, reads := 0, false
	var held *Lease
	for l := range leases(ctx) {
		if l.req.Name != req.Name || !l.c.sameStore(c) || l.Err() != nil {
			continue
		}
		mode, n := l.grant()
		if (mode == driver.Permits) != (req.Mode == driver.Permits) {
			continue // the store returns ErrKind
		}
		held = l
		reads = reads || mode == driver.Shared
		if l.outer == nil {
			permits += n
		}
		if o.reentrant && (mode == driver.Exclusive || mode == req.Mode && req.N <= n) {
			return l, nil
		}
	}
	switch {
	case held == nil || req.Mode == driver.Permits && (req.Limit == LimitAsSet || permits+req.N <= req.Limit):
		return nil, nil
	case reads && req.Mode == driver.Exclusive:
		return nil, ErrUpgrade
	}
	return nil, ErrDeadlock
}

// sameStore reports whether c and d were made with one Backend.
func (c *Client) sameStore(d *Client) bool {
	return c == d || reflect.ValueOf(c.backend).Comparable() && c.backend == d.backend
}

// errGivenBack: the lease to borrow from has given back permits meanwhile.
var errGivenBack = errors.New("permits have been given back")

// lend makes a lease for req that is borrowed from outer: it has the same token, needs no exchange
// with the store, and ends no later. After errGivenBack the caller looks for another.
func (outer *Lease) lend(op string, req *driver.Request, o *options) (*Lease, error) {
	c := outer.c
	l := &Lease{c: c, session: outer.session, req: *req, token: outer.token, grantToken: outer.grantToken,
		since: time.Now(), outer: outer, index: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.notice = outer.notice
	if outer.ended != nil {
		return nil, &Error{Op: op, Name: req.Name, Err: outer.ended}
	}
	if outer.req.Mode == driver.Shared && req.Mode == driver.Exclusive { // downgraded meanwhile
		return nil, &Error{Op: op, Name: req.Name, Err: ErrUpgrade}
	}
	if req.Mode == driver.Permits && req.N > outer.req.N {
		return nil, errGivenBack
	}
	l.latest = forever
	if o.maxHold > 0 {
		l.latest = c.now() + o.maxHold
	}
	l.extend(forever)
	if o.maxHold > 0 {
		c.watchLease(l)
	}
	if outer.inner == nil {
		outer.inner = map[*Lease]struct{}{}
	}
	outer.inner[l] = struct{}{}
	return l, nil
}

// grant returns the mode and the number of the grant, which Downgrade and ReleasePermits may change.
func (l *Lease) grant() (driver.Mode, int) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.req.Mode, l.req.N
}

// Downgrade turns a write lease of an RWMutex into a read lease with the same token, and lets in
// the readers at the head of the queue. No other writer comes between, so the holder can read what
// it has written. It asks the store once.
//
// From the call on the lease is for reading only, also if Downgrade returns an error: ErrUncertain
// or ErrUnavailable if the store did not answer, or ErrRefused if it refuses writes (the client
// then repeats the downgrade in the background); ErrLost if the lease has ended. ErrInvalid if l is
// not a write lease of its own, or write leases that were borrowed from it are still held: nothing
// has changed then.
func (l *Lease) Downgrade() error {
	const op = "downgrade"
	if err := l.usable(op); err != nil {
		return err
	}
	c := l.c
	if c.work.tryAdd() {
		defer c.work.done()
	}
	if err := l.Err(); err != nil { // also notices an expiry
		return l.endedError(op, err.(*Error))
	}
	c.mu.Lock()
	ended, bad := l.ended, ""
	switch {
	case ended != nil:
	case l.shared() != nil: // it is a read lease already
		c.mu.Unlock()
		return nil
	case l.req.Mode == driver.Permits:
		bad = "the permits of a semaphore have no read mode"
	case l.outer != nil:
		bad = "the lease is borrowed; downgrade the one that it was borrowed from"
	case l.writers() > 0:
		bad = "write leases that were borrowed from it are still held"
	default:
		l.req.Mode = driver.Shared
	}
	c.mu.Unlock()
	if ended != nil {
		return l.endedError(op, ended)
	}
	if bad != "" {
		return &Error{Op: op, Name: l.req.Name, Err: fmt.Errorf("%w: %s", ErrInvalid, bad)}
	}
	return l.changeGrant(op, l.session.Downgrade)
}

// changeGrant asks the store to change l's grant. It waits for one answer. If the answer leaves the
// change open, it goes on in the background: so the change can be repeated.
func (l *Lease) changeGrant(op string, change func(context.Context, driver.Hold) error) error {
	c, h := l.c, l.holdID()
	ctx, cancel := c.bound(context.Background())
	err := c.repeatChange(ctx, func() error { return change(ctx, h) })
	cancel()
	switch {
	case err == nil:
		return nil
	case !final(err) || errors.Is(err, ErrRefused): // a store that refuses now may accept later
		c.startTask(h.Name, false, func(ctx context.Context) error {
			if l.Err() != nil {
				return nil
			}
			return change(ctx, h)
		})
		if err = explain(context.Background(), err); !errors.Is(err, ErrRefused) {
			err = asOutage(err)
		}
		return &Error{Op: op, Name: h.Name, Err: err}
	case driver.IsOver(err):
		c.endLost(l, lost("use", &l.req, ReasonEnded)) // unless it was handed off meanwhile
		l.awaitExplanation()
		if l.pushed {
			l.cancelPushed()
		}
		return l.endedError(op, l.Err().(*Error))
	case errors.Is(err, ErrClosed) && c.isOpen(): // the watcher has not noticed yet
		c.endLost(l, lost("use", &l.req, ReasonSession))
		return l.endedError(op, l.Err().(*Error))
	}
	return &Error{Op: op, Name: h.Name, Err: explain(context.Background(), err)}
}

// endedError returns the error of an operation on a lease that has ended for why.
func (l *Lease) endedError(op string, why *Error) error {
	return &Error{Op: op, Name: l.req.Name, Holder: why.Holder, Reason: why.Reason, Notice: why.Notice, Err: why.Err}
}

// writers counts the write leases that are borrowed from l. Called with c.mu held.
func (l *Lease) writers() (n int) {
	for b := range l.inner {
		if b.req.Mode == driver.Exclusive {
			n++
		}
		n += b.writers()
	}
	return n
}

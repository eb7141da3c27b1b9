package holdfast

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
)

// Mutex is a lock that one holder has at a time, among all clients of the store. It is a value
// without state: the holder has a Lease. Any number of Mutex values of one name, in any process,
// are the same lock. It is safe for concurrent use.
type Mutex struct{ lock }

// lock is the common part of the primitives: the request and its options.
type lock struct {
	c   *Client
	req driver.Request
	opt options
}

func (c *Client) lock(name string, mode driver.Mode, n, limit int, opts []Option) lock {
	k := lock{c: c}
	if k.opt.err = c.usable(); k.opt.err == nil {
		k.req, k.opt = c.request(name, mode, n, limit, opts)
	}
	return k
}

// take acquires k and waits if wait is set. op names the operation in errors.
func (k *lock) take(ctx context.Context, op string, wait bool) (*Lease, error) {
	if err := k.usable(op); err != nil {
		return nil, err
	}
	if o := k.c.observer; o != nil && o.WaitEnded != nil {
		return k.takeObserved(ctx, op, wait)
	}
	return k.c.acquire(ctx, op, &k.req, &k.opt, wait, nil)
}

func (k *lock) part() *lock { return k }

// usable returns an error for a lock that no method of a Client has made.
func (k *lock) usable(op string) error {
	if k == nil {
		return &Error{Op: op, Err: fmt.Errorf("%w lock: it is nil", ErrInvalid)}
	}
	err := k.opt.err
	if err == nil {
		err = k.c.usable()
	}
	if err != nil {
		return &Error{Op: op, Name: k.req.Name, Err: err}
	}
	return nil
}

func (k *lock) do(ctx context.Context, op string, f func(context.Context) error) error {
	l, err := k.take(ctx, op, true)
	if err != nil {
		return err
	}
	return l.do(ctx, f)
}

// Mutex returns the mutex of that name, without an exchange with the store. The name is any UTF-8
// text of 1 to 512 bytes. The first use reports a name or option that is not allowed, as
// ErrInvalid.
func (c *Client) Mutex(name string, opts ...Option) *Mutex {
	return &Mutex{c.lock(name, driver.Exclusive, 1, 0, opts)}
}

// Do runs f while it holds m. The context of f is a child of ctx, carries the fencing token (see
// Token), and ends when the lease is lost; Do then returns ErrLost even if f returned nil. A panic
// in f releases the lock as well.
//
// Errors: those of Lock, f's own, those of Lease.Release.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return m.part().do(ctx, "lock", f)
}

func (l *Lease) do(ctx context.Context, f func(context.Context) error) error {
	return doAndRelease(l.Context(ctx), f, l.releaseAfter)
}

func doAndRelease(ctx context.Context, f func(context.Context) error, release func(failed bool) error) (err error) {
	failed := true // also if f panics
	defer func() { err = both(err, release(failed)) }()
	err = f(ctx)
	failed = err != nil
	return err
}

// releaseAfter is the release after the function of Do.
func (l *Lease) releaseAfter(failed bool) error {
	if failed && l.retry {
		return l.ReleaseNow()
	}
	return l.Release()
}

// both returns the error of the work, that of the release, or both.
func both(err, released error) error {
	switch {
	case err == nil:
		return released
	case released == nil:
		return err
	}
	return errors.Join(err, released)
}

// Lock waits until it holds m and returns the lease. ctx bounds the wait only, never the lease;
// when ctx ends, Lock gives up its place in the queue at once. When Lock returns a lease, the store
// has recorded a grant that excludes every other, with a larger token than any before it. Lock may
// be called from many goroutines; each call is a contender of its own. A free lock costs one
// exchange with the store. A Release may pass the lock on to another call of the same client, without
// an exchange: see Config.Passes.
//
// Lock tries a store that does not answer for up to a TTL. Errors: ctx's, ErrDeadlock, ErrHeld
// (WaitAtMost, Poll), ErrKind, ErrInvalid, ErrUnavailable, ErrUncertain, ErrRefused, ErrDamaged,
// ErrClosed.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.part().take(ctx, "lock", true)
}

// TryLock takes m if it is free now and nobody waits for it, in one exchange with the store.
// Otherwise it writes nothing. Errors: ErrHeld, with the holder in the *Error, and those of Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.part().take(ctx, "try lock", false)
}

func (m *Mutex) part() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}

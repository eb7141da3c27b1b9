package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
)

// Semaphore has a number of permits, the limit, which its holders share. It is served in
// strict order of arrival: a request for many permits that has to wait holds up those
// behind it and so does not starve. Each grant is a lease with a token of its own; the
// permits of a dead holder come back when its lease has run out. It is a value without
// state and safe for concurrent use.
type Semaphore struct{ lock }

// Semaphore returns the semaphore of that name; nothing is asked of the store. limit, from 1
// to 2^30, belongs to the name while it is in use: another limit is refused with ErrKind;
// Client.SetLimit changes it. Names and options are as for Mutex.
func (c *Client) Semaphore(name string, limit int, opts ...Option) *Semaphore {
	return &Semaphore{c.lock(name, driver.Permits, 1, limit, opts)}
}

// Acquire waits until it holds n permits, all at once, under one lease. It is as Mutex.Lock
// otherwise. A context that holds so many that n more can never be had gets ErrDeadlock;
// with Reentrant, n that it holds already are borrowed.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return s.permits(n).take(ctx, "acquire", true)
}

// TryAcquire takes n permits if they are free now and nobody waits, as Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return s.permits(n).take(ctx, "try acquire", false)
}

// Do runs f while it holds n permits, as Mutex.Do.
func (s *Semaphore) Do(ctx context.Context, n int, f func(context.Context) error) error {
	return s.permits(n).do(ctx, "acquire", f)
}

// Permits are n permits as a part of LockAll. s itself is the part that wants one.
func (s *Semaphore) Permits(n int) Part { return s.permits(n) }

func (s *Semaphore) permits(n int) *lock {
	if s.part() == nil {
		return nil
	}
	k := s.lock
	k.req.N = n
	if k.opt.err == nil {
		k.opt.err = k.c.made()
	}
	if k.opt.err == nil {
		k.opt.err = k.req.Check()
	}
	return &k
}

func (s *Semaphore) part() *lock {
	if s == nil {
		return nil
	}
	return &s.lock
}

// SetLimit changes the limit of a semaphore that is in use. Lowering it takes nothing from
// holders; nothing is granted until they fit again. Who waits goes on under the new limit (a
// request for more permits than that holds up the line until it gives up, or the limit is
// raised); who comes with the old one gets ErrKind.
//
// Errors: ErrGone if the name is not in use (the limit is then whatever the first to come
// says), ErrKind if it is no semaphore, ErrInvalid, ErrUnavailable, ErrUncertain, ErrRefused.
func (c *Client) SetLimit(ctx context.Context, name string, limit int) error {
	r := driver.Request{ID: "-", Name: name, Mode: driver.Permits, N: 1, Limit: limit}
	err := c.made()
	if err == nil {
		err = r.Check()
	}
	if err == nil {
		err = explain(ctx, c.backend.SetLimit(ctx, name, limit)) // once: another may set it in between
	}
	if err != nil {
		return &Error{Op: "set limit", Name: name, Err: err}
	}
	return nil
}

package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast/driver"
)

// Semaphore has a number of permits, its limit, which its holders share. It is served in strict
// order of arrival: a request for many permits holds up those behind it and so does not starve.
// Each grant has a lease and a token of its own; the permits of a dead holder become free when its
// lease expires. A store without semaphores refuses it with ErrInvalid (docs/guarantees.md has the
// stores). It is a value without state and safe for concurrent use.
type Semaphore struct{ lock }

// Semaphore returns the semaphore of that name, without an exchange with the store. The limit, from
// 1 to 2^30, belongs to the name while it is in use: the store refuses another limit with ErrKind,
// and Client.SetLimit changes it. Names and options are as for Mutex.
func (c *Client) Semaphore(name string, limit int, opts ...Option) *Semaphore {
	return &Semaphore{c.lock(name, driver.Permits, 1, limit, opts)}
}

// Acquire waits until it holds n permits, all at once, under one lease; otherwise as Mutex.Lock. A
// context that holds so many permits that n more can never be free gets ErrDeadlock. With
// Reentrant, a context that holds n permits borrows them.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return s.permits(n).take(ctx, "acquire", true)
}

// TryAcquire takes n permits if they are free now and nobody waits, as Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return s.permits(n).take(ctx, "try acquire", false)
}

// Drain takes all permits that are free now, under one lease, and returns how many. It does not wait:
// ErrHeld if no permit is free, or somebody waits. It asks the store how many are free and takes
// those, so it may leave permits that become free at the same moment. Otherwise as TryAcquire.
func (s *Semaphore) Drain(ctx context.Context) (l *Lease, n int, err error) {
	const op, most = "drain", 8 // tries: others may be faster
	if err := s.permits(1).usable(op); err != nil {
		return nil, 0, err
	}
	for range most {
		if n, err = s.free(ctx); err != nil {
			return nil, 0, &Error{Op: op, Name: s.req.Name, Err: explain(ctx, err)}
		}
		if l, err = s.permits(max(n, 1)).take(ctx, op, false); err == nil {
			return l, l.req.N, nil
		}
		if n <= 1 || !errors.Is(err, ErrHeld) {
			break
		}
	}
	return nil, 0, err
}

// free returns how many permits nobody holds, by the store's record.
func (s *Semaphore) free(ctx context.Context) (int, error) {
	r, err := s.c.inspect(ctx, s.req.Name)
	if err != nil || r.Kind != driver.Semaphore {
		return s.req.Limit, err
	}
	n := s.req.Limit
	for _, h := range r.Holders {
		n -= h.N
	}
	return max(n, 0), nil
}

// Do runs f while it holds n permits, as Mutex.Do.
func (s *Semaphore) Do(ctx context.Context, n int, f func(context.Context) error) error {
	return s.permits(n).do(ctx, "acquire", f)
}

// Permits returns n permits as a part of LockAll. s itself is the part with one permit.
func (s *Semaphore) Permits(n int) Part { return s.permits(n) }

func (s *Semaphore) permits(n int) *lock {
	if s.part() == nil {
		return nil
	}
	k := s.lock
	k.req.N = n
	if k.opt.err == nil {
		k.opt.err = k.c.usable()
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

// SetLimit changes the limit of a semaphore that is in use. A lower limit takes nothing from
// holders; nothing is granted until the grants fit again. Waiters stay under the new limit: a
// request for more permits holds up the queue until it gives up, or the limit is raised. New
// requests with the old limit get ErrKind.
//
// Errors: ErrGone if the name is not in use (the next request then sets the limit), ErrKind if it
// is no semaphore, ErrInvalid, ErrUnavailable, ErrUncertain, ErrRefused.
func (c *Client) SetLimit(ctx context.Context, name string, limit int) error {
	r := driver.Request{ID: "-", Name: name, Mode: driver.Permits, N: 1, Limit: limit}
	err := c.usable()
	if err == nil {
		err = r.Check()
	}
	if err == nil {
		err = c.keeps(&r, false)
	}
	if err == nil {
		err = explain(ctx, c.backend.SetLimit(ctx, name, limit)) // only once: somebody else may set it in between
	}
	if err != nil {
		return &Error{Op: "set limit", Name: name, Err: err}
	}
	return nil
}

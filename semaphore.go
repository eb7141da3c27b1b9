package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Semaphore has a number of permits, its limit, which its holders share. It is served in strict
// order of arrival: a request for many permits holds up those behind it and so does not starve.
// Each grant has a lease and a token of its own; the permits of a dead holder become free when its
// lease expires. A store without semaphores refuses it with ErrInvalid (docs/guarantees.md has the
// stores). It is a value without state and safe for concurrent use.
type Semaphore struct{ lock }

// LimitAsSet stands for the limit that is set at the store, by Client.SetLimit or "holdfast sem limit".
// Callers of such a Semaphore need not know it.
const LimitAsSet = 0

// Semaphore returns the semaphore of that name, without an exchange with the store. The limit, from
// 1 to 2^30, belongs to the name while it is in use: the store refuses another limit with ErrKind,
// and Client.SetLimit changes it. Names and options are as for Mutex.
//
// With LimitAsSet the store's limit counts, and may change at any time: nobody is refused for it. A
// request for more permits than the limit waits until the limit is raised. So ErrDeadlock is not
// reported. If no limit is set, Acquire returns ErrInvalid, also while others use the semaphore with
// a limit of their own: that limit ends with its last user.
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
	n := cmp.Or(s.req.Limit, r.Limit)
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

// Permits returns how many permits of a semaphore the lease holds; 1 for other kinds of lock.
func (l *Lease) Permits() int {
	l.mustBeUsable("Permits")
	_, n := l.grant()
	return n
}

// ReleasePermits gives n permits back and keeps the others: under the same token, with the same
// lease. Waiters that fit get them in the same step. It asks the store once.
//
// From the call on the lease has n permits fewer, also if ReleasePermits returns one of these errors:
//
//   - ErrUncertain or ErrUnavailable if the store did not answer, ErrRefused if it refuses writes. The
//     client then repeats it in the background, and goes on until a MinHold is over.
//   - ErrLost if the lease has ended.
//
// After ErrInvalid nothing has changed. There are these reasons:
//
//   - l is not a semaphore's lease of its own.
//   - n is below 1, or leaves none (call Release).
//   - A lease that is borrowed from l holds more than would remain.
//   - A MinHold is not over.
func (l *Lease) ReleasePermits(n int) error {
	const op = "release permits"
	if err := l.usable(op); err != nil {
		return err
	}
	c := l.c
	if c.work.tryAdd() {
		defer c.work.done()
	}
	l.reducing.Lock() // until the store has answered, a later call cannot know how many it leaves
	defer l.reducing.Unlock()
	if err := l.Err(); err != nil { // also notices an expiry
		return l.endedError(op, err.(*Error))
	}
	c.mu.Lock()
	ended, bad, left := l.ended, "", l.req.N-n
	switch {
	case ended != nil:
	case l.req.Mode != driver.Permits:
		bad = "it is not a lease of a semaphore"
	case l.outer != nil:
		bad = "the lease is borrowed; give back permits of the one that it was borrowed from"
	case n < 1 || left < 1:
		bad = fmt.Sprintf("%d of %d permits; allowed are 1 to %d, and Release gives back all", n, l.req.N, l.req.N-1)
	case l.borrowed() > left:
		bad = fmt.Sprintf("a lease that was borrowed from it holds more than the %d that would remain", left)
	default:
		l.req.N = left
	}
	c.mu.Unlock()
	if ended != nil {
		return l.endedError(op, ended)
	}
	if bad != "" {
		return &Error{Op: op, Name: l.req.Name, Err: fmt.Errorf("%w: %s", ErrInvalid, bad)}
	}
	// The store is told how many remain, not how many are given back: so the exchange can be
	// repeated, and may arrive after a later one.
	err := l.changeGrant(op, func(ctx context.Context, h driver.Hold) error {
		err := l.session.Reduce(ctx, h, left)
		if errors.Is(err, ErrInvalid) { // the minimum hold is not over
			err = &tooEarly{err, l.req.MinHold - time.Since(l.since)}
		}
		return err
	})
	if errors.Is(err, ErrInvalid) { // the store has refused every try
		c.mu.Lock()
		l.req.N += n
		c.mu.Unlock()
	}
	return err
}

// borrowed returns how many permits the largest lease has that is borrowed from l. Called with c.mu
// held.
func (l *Lease) borrowed() (most int) {
	for b := range l.inner {
		most = max(most, b.req.N)
	}
	return most
}

// SetLimit sets the limit of a semaphore, whether anybody uses it or not. It stays at the store until
// it is set again, or removed by limit 0. Until then the name is a semaphore, even if nobody uses it:
// Mutex and the other kinds are refused (ErrKind). A lower limit takes nothing from holders; nothing
// is granted until the grants fit again. Waiters stay under the new limit: a request for more permits
// holds up the queue until it gives up, or the limit is raised. New requests with another limit get
// ErrKind, unless they ask for LimitAsSet. A limit that was removed counts until the last user has
// left.
//
// Errors: ErrKind if the name is in use and no semaphore, ErrGone if there is no limit to remove,
// ErrInvalid, ErrUnavailable, ErrUncertain, ErrRefused.
func (c *Client) SetLimit(ctx context.Context, name string, limit int) error {
	r := driver.Request{ID: "-", Name: name, Mode: driver.Permits, N: 1, Limit: limit}
	err := c.usable()
	if err == nil && (limit < 0 || limit > driver.MaxLimit) {
		err = fmt.Errorf("%w limit %d: allowed are 1 to %d, and 0 to remove the one that is set", ErrInvalid, limit,
			driver.MaxLimit)
	}
	if err == nil {
		err = r.Check()
	}
	if err == nil {
		err = c.keeps(&r, false)
	}
	if err == nil {
		// Only once: somebody else may set it in between.
		err = missing(explain(ctx, c.store.SetLimit(ctx, name, limit)), "no limit is set")
	}
	if err != nil {
		return &Error{Op: "set limit", Name: name, Err: err}
	}
	return nil
}

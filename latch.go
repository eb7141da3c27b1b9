package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// Latch is a counter that goes down to zero once; callers can wait for zero. It is no lease: it has
// no holder, outlives the client that made it, and survives restarts of the store if the store is
// durable. Redis deletes it a day after its last use. A store without latches refuses it with
// ErrInvalid (docs/guarantees.md has the stores). It is a value without state and safe for
// concurrent use.
type Latch struct {
	c    *Client
	name string
	err  error
}

// Latch returns the latch of that name, without an exchange with the store.
func (c *Client) Latch(name string) *Latch {
	err := driver.CheckName(name)
	if err == nil && c.usable() == nil && !c.backend.Kinds().Latches {
		err = c.lacks("latches")
	}
	return &Latch{c, name, err}
}

// Set makes the latch with count n and reports whether it did. A latch that exists keeps its count,
// so every participant may call Set. If an answer of the store was lost, created may be false
// although this call has made the latch.
//
// Errors: ErrKind if the name is in use as a lock, ErrInvalid, ErrUnavailable, ErrUncertain,
// ErrRefused, ErrDamaged, ErrClosed, ctx's. Like all methods of Latch, Set tries a store that does
// not answer for up to a TTL.
func (l *Latch) Set(ctx context.Context, n int64) (created bool, err error) {
	if err := l.usable("set latch"); err != nil {
		return false, err
	}
	if n < 0 {
		l = &Latch{l.c, l.name, fmt.Errorf("%w count %d: it must not be negative", ErrInvalid, n)}
	}
	err = l.exchange(ctx, "set latch", func(ctx context.Context, s *session) (err error) {
		created, err = s.SetCount(ctx, l.name, n)
		return err
	})
	return created, err
}

// CountDown takes one from the latch and returns what is left; it does not go below zero. An id is
// any text of up to 512 bytes, for example the name of a job that may run again. Each id counts
// once, however often and wherever it is used. With an empty id each call counts once.
//
// A call whose answer was lost is repeated. If somebody removes the latch and sets it again at that
// moment, the call may count in both. So each round of a repeated job needs a name of its own.
//
// Errors: ErrGone if there is no such latch, and those of Set.
func (l *Latch) CountDown(ctx context.Context, id string) (left int64, err error) {
	if err := l.usable("count down"); err != nil {
		return 0, err
	}
	switch {
	case id == "":
		_, id = l.c.requests.next()
	case len(id) > driver.MaxName || !utf8.ValidString(id):
		l = &Latch{l.c, l.name, fmt.Errorf("%w id %.20q: allowed is UTF-8 text of up to %d bytes", ErrInvalid, id,
			driver.MaxName)}
	}
	err = l.exchange(ctx, "count down", func(ctx context.Context, s *session) (err error) {
		left, err = s.CountDown(ctx, l.name, id)
		return err
	})
	return left, err
}

// Wait returns when the latch has reached zero. Errors: ErrGone if there is no such latch or it was
// removed, and those of Set.
func (l *Latch) Wait(ctx context.Context) error {
	const op = "wait"
	if err := l.usable(op); err != nil {
		return err
	}
	c := l.c
	if !c.work.tryAdd() {
		return &Error{Op: op, Name: l.name, Err: ErrClosed}
	}
	defer c.work.done()
	for {
		_, id := c.requests.next()
		open, err := l.await(ctx, c.session.Load(), id)
		if open || err != nil {
			return err
		}
	}
}

// await waits in one session, under one ID. It returns false when the session is over.
func (l *Latch) await(ctx context.Context, s *session, id string) (open bool, err error) {
	const op = "wait"
	c := l.c
	asked, unanswered := false, false
	for {
		var reply driver.Reply
		err := l.exchange(ctx, op, func(ctx context.Context, now *session) (err error) {
			if now != s {
				return nil
			}
			reply, err = s.Await(ctx, l.name, id)
			asked, unanswered = asked || err == nil || leftOpen(err), unanswered || leftOpen(err)
			return err
		})
		if err == nil && reply.Token != 0 {
			return true, nil
		}
		if err == nil && c.session.Load() != s {
			return false, nil
		}
		if err == nil {
			// Ask again: the push may be lost, and the store may forget who waits.
			t := time.NewTimer(c.TTL() / 3)
			select {
			case <-reply.Wake:
			case <-t.C:
			case <-s.lost: // the keeper opens another; until then Await returns ErrClosed
				err = c.pause(ctx, 10*time.Millisecond)
			case <-ctx.Done():
				err = cause(ctx)
			case <-c.openCtx.Done():
				err = ErrClosed
			}
			t.Stop()
			if err == nil {
				continue
			}
			err = &Error{Op: op, Name: l.name, Err: err}
		}
		if asked && !errors.Is(err, ErrGone) && !errors.Is(err, ErrKind) {
			c.cancelInBackground(s, l.name, id, unanswered)
		}
		return false, err
	}
}

// Remove deletes the latch: the name is free for another use, and Wait returns ErrGone to its
// waiters. Errors: ErrGone if there is no such latch, ErrKind if the name is in use as something
// else, ErrUnavailable, ErrUncertain, ErrRefused, ErrDamaged.
func (l *Latch) Remove(ctx context.Context) error {
	const op = "remove latch"
	if err := l.usable(op); err != nil {
		return err
	}
	// A repeat could remove the next latch of that name. Inspect may be repeated, and shows that the
	// connection works.
	_, err := l.c.inspect(ctx, l.name)
	if err == nil {
		err = l.c.store.RemoveLatch(ctx, l.name)
	}
	if err != nil {
		return &Error{Op: op, Name: l.name, Err: missing(explain(ctx, err), noLatch)}
	}
	return nil
}

const noLatch = "there is no such latch"

// usable returns the error of a latch that cannot be used.
func (l *Latch) usable(op string) error {
	var err error
	switch {
	case l == nil:
		return &Error{Op: op, Err: fmt.Errorf("%w latch: it is nil", ErrInvalid)}
	case l.err != nil:
		err = l.err
	default:
		err = l.c.usable()
	}
	if err != nil {
		return &Error{Op: op, Name: l.name, Err: err}
	}
	return nil
}

// exchange repeats f until the store answers, ctx ends, or a TTL has passed.
func (l *Latch) exchange(ctx context.Context, op string, f func(context.Context, *session) error) error {
	if err := l.usable(op); err != nil {
		return err
	}
	c := l.c
	fail := func(err error) error { return &Error{Op: op, Name: l.name, Err: missing(err, noLatch)} }
	if !c.work.tryAdd() {
		return fail(ErrClosed)
	}
	defer c.work.done()
	pause := backoff.Pause{First: firstPause, Most: time.Second}
	var last error // of the store
	for end := c.coarseNow() + c.TTL(); ; {
		if err := ctx.Err(); err != nil {
			err = cause(ctx)
			if last != nil {
				err = fmt.Errorf("%w; the store had failed: %v", err, last)
			}
			return fail(err)
		}
		if !c.isOpen() {
			return fail(ErrClosed)
		}
		s := c.session.Load()
		bctx, cancel := c.bound(ctx)
		err := f(bctx, s)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && !decided(err):
			continue
		case errors.Is(err, ErrClosed) && c.session.Load() != s: // there is another session
			continue
		case decided(err):
			return fail(explain(ctx, err))
		}
		last = explain(ctx, err)
		if c.coarseNow() > end {
			return fail(asOutage(last))
		}
		_ = c.pause(ctx, pause.Next()) // the loop sees what has ended
	}
}

package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

// Latch lets those who wait for it through when it has been counted down to zero, and then
// for good. It is no lease: nobody holds it, it does not run out with its maker, and it
// survives restarts of the store where the store is durable. Redis forgets it a day after
// it was last touched. It is a value without state and safe for concurrent use.
type Latch struct {
	c    *Client
	name string
	err  error
}

// Latch returns the latch of that name; nothing is asked of the store.
func (c *Client) Latch(name string) *Latch {
	return &Latch{c, name, driver.CheckName(name)}
}

// Set makes the latch with count n and reports whether it did. A latch that exists keeps
// its count, so every participant may call Set. (If an answer of the store was lost on the
// way, false may speak of a latch that this call has made.)
//
// Errors: ErrKind if the name is in use as a lock, ErrInvalid, ErrUnavailable,
// ErrUncertain, ErrRefused, ErrDamaged, ErrClosed, ctx's. A store that does not answer is
// tried for up to a TTL, as in all methods of Latch.
func (l *Latch) Set(ctx context.Context, n int64) (created bool, err error) {
	if err := l.made("set latch"); err != nil {
		return false, err
	}
	if n < 0 {
		l = &Latch{l.c, l.name, fmt.Errorf("%w count %d: it must not be negative", ErrInvalid, n)}
	}
	err = l.ask(ctx, "set latch", func(ctx context.Context, s *session) (err error) {
		created, err = s.SetCount(ctx, l.name, n)
		return err
	})
	return created, err
}

// CountDown takes one from the latch and returns what is left; at zero it stays. An id, any
// text of up to 512 bytes, counts once however often and from wherever it is used: the
// name of a job that may run again, for example. With an empty id each call counts once.
//
// Errors: ErrGone if there is no such latch, and those of Set.
func (l *Latch) CountDown(ctx context.Context, id string) (left int64, err error) {
	if err := l.made("count down"); err != nil {
		return 0, err
	}
	switch {
	case id == "":
		_, id = l.c.requests.next()
	case len(id) > driver.MaxName || !utf8.ValidString(id):
		l = &Latch{l.c, l.name, fmt.Errorf("%w id %.20q: allowed is UTF-8 text of up to %d bytes", ErrInvalid, id, driver.MaxName)}
	}
	err = l.ask(ctx, "count down", func(ctx context.Context, s *session) (err error) {
		left, err = s.CountDown(ctx, l.name, id)
		return err
	})
	return left, err
}

// Wait returns when the latch has reached zero. Errors: ErrGone if there is no such latch
// (any more), and those of Set.
func (l *Latch) Wait(ctx context.Context) error {
	const op = "wait"
	if err := l.made(op); err != nil {
		return err
	}
	c := l.c
	if !c.work.enter() {
		return &Error{Op: op, Name: l.name, Err: ErrClosed}
	}
	defer c.work.leave()
	for {
		_, id := c.requests.next()
		open, err := l.await(ctx, c.session.Load(), id)
		if open || err != nil {
			return err
		}
	}
}

// await waits in one session, under one id. It returns false when the session is over.
func (l *Latch) await(ctx context.Context, s *session, id string) (open bool, err error) {
	const op = "wait"
	c := l.c
	asked, crossed := false, false
	for {
		var reply driver.Reply
		err := l.ask(ctx, op, func(ctx context.Context, now *session) (err error) {
			if now != s {
				return nil
			}
			reply, err = s.Await(ctx, l.name, id)
			asked, crossed = asked || err == nil || leftOpen(err), crossed || leftOpen(err)
			return err
		})
		if err == nil && reply.Token != 0 {
			return true, nil
		}
		if err == nil && c.session.Load() != s {
			return false, nil
		}
		if err == nil {
			// The push may be lost, and the store need not remember for ever who waits.
			t := time.NewTimer(c.TTL() / 3)
			select {
			case <-reply.Wake:
			case <-t.C:
			case <-s.lost: // the keeper opens another, or Await says ErrClosed until it has
				err = c.pause(ctx, 10*time.Millisecond)
			case <-ctx.Done():
				err = cause(ctx)
			case <-c.alive.Done():
				err = ErrClosed
			}
			t.Stop()
			if err == nil {
				continue
			}
			err = &Error{Op: op, Name: l.name, Err: err}
		}
		if asked && !errors.Is(err, ErrGone) && !errors.Is(err, ErrKind) {
			c.cancel(s, l.name, id, crossed)
		}
		return false, err
	}
}

// Remove ends the latch: the name is free for another, and those who wait get ErrGone.
// Errors: ErrGone if there is no such latch, ErrUnavailable, ErrUncertain, ErrRefused.
func (l *Latch) Remove(ctx context.Context) error {
	const op = "remove latch"
	if err := l.made(op); err != nil {
		return err
	}
	r, err := l.c.inspect(ctx, l.name) // a lock may have a grant with token 1, too
	if err == nil && r.Kind != driver.Latch {
		err = ErrGone
	}
	if err == nil {
		// Once: asked again it could remove the next latch of that name. That the connection is alive was just seen.
		err = l.c.backend.Break(ctx, l.name, 1)
	}
	if err != nil {
		return &Error{Op: op, Name: l.name, Err: explain(ctx, err)}
	}
	return nil
}

// made returns the error of a latch that cannot be used.
func (l *Latch) made(op string) error {
	var err error
	switch {
	case l == nil:
		return &Error{Op: op, Err: fmt.Errorf("%w latch: it is nil", ErrInvalid)}
	case l.err != nil:
		err = l.err
	default:
		err = l.c.made()
	}
	if err != nil {
		return &Error{Op: op, Name: l.name, Err: err}
	}
	return nil
}

// ask repeats an exchange until the store answers, ctx ends, or a TTL has passed.
func (l *Latch) ask(ctx context.Context, op string, f func(context.Context, *session) error) error {
	if err := l.made(op); err != nil {
		return err
	}
	c := l.c
	fail := func(err error) error { return &Error{Op: op, Name: l.name, Err: err} }
	if !c.work.enter() {
		return fail(ErrClosed)
	}
	defer c.work.leave()
	pause := backoff{most: time.Second}
	var last error // of the store
	for end := c.soonest() + c.TTL(); ; {
		if err := ctx.Err(); err != nil {
			err = cause(ctx)
			if last != nil {
				err = fmt.Errorf("%w; the store had failed: %v", err, last)
			}
			return fail(err)
		}
		if !c.live() {
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
		case errors.Is(err, ErrClosed) && c.session.Load() != s: // it is over, and there is another
			continue
		case decided(err):
			return fail(explain(ctx, err))
		}
		last = explain(ctx, err)
		if c.soonest() > end {
			return fail(outage(last))
		}
		_ = c.pause(ctx, pause.next()) // what has ended is seen above
	}
}

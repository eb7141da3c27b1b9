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
// ErrUncertain, ErrRefused, ErrClosed, ctx's. A store that does not answer is tried for up
// to a TTL, as in all methods of Latch.
func (l *Latch) Set(ctx context.Context, n int64) (created bool, err error) {
	if n < 0 && l.err == nil {
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
	switch {
	case id == "":
		id = l.c.nextID(l.c.session.Load())
	case l.err == nil && (len(id) > driver.MaxName || !utf8.ValidString(id)):
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
	c := l.c
	if !c.begin() {
		return &Error{Op: op, Name: l.name, Err: ErrClosed}
	}
	defer c.ends.Done()
	for {
		var reply driver.Reply
		var s *session
		id := c.nextID(c.session.Load())
		leave := func() {
			c.background(func() {
				c.insist(func(ctx context.Context) error { return s.Cancel(ctx, l.name, id) })
			})
		}
		for again := true; again; {
			err := l.ask(ctx, op, func(ctx context.Context, now *session) (err error) {
				s = now
				reply, err = s.Await(ctx, l.name, id)
				return err
			})
			if err != nil {
				if s != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrKind) {
					leave()
				}
				return err
			}
			if reply.Token != 0 {
				return nil
			}
			// The push may be lost, and the store need not remember for ever who waits.
			t := time.NewTimer(c.TTL() / 3)
			select {
			case <-reply.Wake:
			case <-t.C:
			case <-s.Lost():
				again = false
			case <-ctx.Done():
				leave()
				err = cause(ctx)
			case <-c.closing:
				leave()
				err = ErrClosed
			}
			t.Stop()
			if err != nil {
				return &Error{Op: op, Name: l.name, Err: err}
			}
		}
	}
}

// Remove ends the latch: the name is free for another, and those who wait get ErrGone.
// Errors: ErrGone if there is no such latch, ErrUnavailable, ErrUncertain, ErrRefused.
func (l *Latch) Remove(ctx context.Context) error {
	if l.err != nil {
		return &Error{Op: "remove latch", Name: l.name, Err: l.err}
	}
	r, err := l.c.backend.Inspect(ctx, l.name) // a lock may have a grant with token 1, too
	if err == nil && r.Kind != driver.Latch {
		err = ErrGone
	}
	if err == nil {
		err = l.c.backend.Break(ctx, l.name, 1)
	}
	if err != nil {
		return &Error{Op: "remove latch", Name: l.name, Err: err}
	}
	return nil
}

// ask repeats an exchange until the store answers, ctx ends, or a TTL has passed.
func (l *Latch) ask(ctx context.Context, op string, f func(context.Context, *session) error) error {
	c, err := l.c, l.err
	pause := 10 * time.Millisecond
	for end := c.soonest() + c.TTL(); err == nil; pause = min(2*pause, time.Second) {
		if ctx.Err() != nil {
			err = cause(ctx)
			break
		}
		if !c.live() {
			err = ErrClosed
			break
		}
		s := c.session.Load()
		bctx, cancel := c.bound(ctx)
		ferr := f(bctx, s)
		cancel()
		switch {
		case ferr == nil:
			return nil
		case errors.Is(ferr, ErrClosed) && c.session.Load() != s: // it is over, and there is another
		case decided(ferr):
			err = ferr
		case c.soonest() > end:
			err = outage(ferr)
		default:
			err = c.pause(ctx, nil, pause)
		}
	}
	return &Error{Op: op, Name: l.name, Err: err}
}

package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// TickHold returns how long [Client.OnlyOne] keeps a name for ticks of that length: nine tenths of
// a tick. Clocks differ, and schedules fire early, so a hold of a whole tick would prevent the next
// run.
func TickHold(every time.Duration) time.Duration { return every - every/10 }

// OnlyOne runs f if nobody has run it in this tick. It is for a job that a schedule starts on many
// machines at once and that one of them is to do. It takes the mutex of that name without waiting.
// It keeps the name for nine tenths of a tick (see [MinHold]), even after f has returned or the
// process has died, but see [RetryFailed]. A tick begins with its first run, so two runs are at
// least nine tenths of a tick apart, unless the store loses its data. ran reports whether f was run;
// if another has run it or is running it, err is nil, and [Client.NextRun] says when that ends. f
// gets the context of the lease, as in Mutex.Do. The machines' clocks and schedules may differ by a
// tenth of a tick. A store without minimum holds refuses it with ErrInvalid.
//
// Of a quorum, too few servers may be free although nobody has run it ([Holder.Partial]). Then OnlyOne waits until the
// grant that is in the way ends, which takes a TTL at most, but no longer than a tick. If that is not enough, err is
// ErrHeld.
func (c *Client) OnlyOne(ctx context.Context, name string, every time.Duration, f func(context.Context) error,
	opts ...Option) (ran bool, err error) {
	if every <= 0 {
		return false, invalidTick("run once per tick", name, every)
	}
	m := c.Mutex(name, append(slices.Clip(opts), MinHold(TickHold(every)))...)
	l, err := m.TryLock(ctx)
	if h := leftBehind(err); h != nil {
		m.opt.atMost = min(h.Left+time.Second, every)
		l, err = m.Lock(ctx)
	}
	switch {
	case err == nil:
		return true, l.do(ctx, f)
	case errors.Is(err, ErrHeld) && leftBehind(err) == nil:
		return false, nil
	}
	return false, err
}

// leftBehind returns the grant because of which a lock was refused, if too few servers of a quorum have it, and it was
// not released.
func leftBehind(err error) *Holder {
	var e *Error
	if errors.Is(err, ErrHeld) && errors.As(err, &e) && e.Holder != nil && e.Holder.Partial && !e.Holder.Kept {
		return e.Holder
	}
	return nil
}

// NextRun returns when OnlyOne with this name and tick can run next, on this machine's clock: when
// the store stops keeping the name. If it can run now, the time is not in the future. While a run is
// under way, the time is an estimate: it is later if the run takes longer, and earlier if the run
// fails under RetryFailed. So is [Record.FreeIn] of a quorum.
// NextRun is one exchange with the store.
// Errors: ErrInvalid for a tick that is not positive, and those of Inspect.
func (c *Client) NextRun(ctx context.Context, name string, every time.Duration) (time.Time, error) {
	if every <= 0 {
		return time.Time{}, invalidTick("next run", name, every)
	}
	r, err := c.Inspect(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	next := now.Add(r.FreeIn)
	for i := range r.Holders {
		h := &r.Holders[i]
		end := h.Since.Add(TickHold(every)) // of a run under way; the lease ends sooner
		if h.Kept {
			end = now.Add(h.Left)
		}
		if end.After(next) {
			next = end
		}
	}
	return next, nil
}

func invalidTick(op, name string, every time.Duration) error {
	return &Error{Op: op, Name: name, Err: fmt.Errorf("%w tick of %v: it must be positive", ErrInvalid, every)}
}

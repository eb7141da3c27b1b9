package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// TickHold returns how long [Client.OnlyOne] keeps a name for ticks of that length: nine tenths of
// a tick. Clocks differ, and schedules fire early, so a hold of a whole tick would prevent the next
// run.
func TickHold(every time.Duration) time.Duration { return every - every/10 }

// OnlyOne runs f if nobody has run it in this tick. It is for a job that a schedule starts on many
// machines at once and that one of them is to do. It takes the mutex of that name without waiting.
// It keeps the name for nine tenths of a tick (see [MinHold]), even after f has returned or the
// process has died, but see [RetryFailed]. A tick begins with its first run, so two runs are at
// least nine tenths of a tick apart, unless the store loses its data. They may be nearer by the time
// that the store took to answer the first, or that the process stood still: the store counts from its
// grant. Let a tick be much longer than Config.TTL. ran reports whether f was run;
// if another has run it or is running it, err is nil, and [Client.NextRun] says when that ends. f
// gets the context of the lease, as in Mutex.Do. The machines' clocks and schedules may differ by a
// tenth of a tick. A store without minimum holds refuses it with ErrInvalid, as OnlyOne does the option
// Reentrant: a borrowed lease keeps no name.
//
// On a quorum, a refusal may name a grant that only a minority of the servers has ([Holder.Partial]).
// Nobody knows then whether the job was run. OnlyOne tries again until that is known: for what is
// left of its lease, or for a TTL if that is longer, and 5 s more, but no longer than a tick. If that
// is not enough, err is ErrHeld, and the next tick may be refused for the same reason. On every store,
// OnlyOne also tries again beside a grant of its own whose answer was lost ([Holder.Abandoned]).
func (c *Client) OnlyOne(ctx context.Context, name string, every time.Duration, f func(context.Context) error,
	opts ...Option) (ran bool, err error) {
	if every <= 0 {
		return false, invalidTick(opTick, name, every)
	}
	if err := c.usable(); err != nil {
		return false, &Error{Op: opTick, Name: name, Err: err}
	}
	m := c.Mutex(name, append(slices.Clip(opts), MinHold(TickHold(every)))...)
	if m.opt.reentrant {
		m.opt.refuse("Reentrant: a borrowed lease does not keep the name for a tick")
	}
	var l *Lease
	backoff.Outlast(ctx, c.TTL(), every, func(rest time.Duration) time.Duration {
		again := err != nil
		if again && rest > 0 && c.tooFewFree(ctx, name, rest) {
			return 1
		}
		l, err = m.TryLock(ctx)
		return obstacle(err, again)
	})
	switch {
	case err == nil:
		return true, l.do(ctx, f)
	case errors.Is(err, ErrHeld) && obstacle(err, false) == 0:
		return false, nil
	}
	return false, err
}

// isOutage reports whether err is about a store that does not serve. It may have granted what was asked.
func isOutage(err error) bool { return errors.Is(err, ErrUncertain) || errors.Is(err, ErrUnavailable) }

const opTick = "run once per tick"

// obstacle returns how long a grant is still in the way of a lock that was refused. It is 0 if the
// grant is a run of the job. It is none if too few servers of a quorum have it, or if it is of an earlier
// try whose answer was lost. If the store names no holder, nobody knows whether there was a run. A kept
// name may last for very long, so its end is not waited for. again: an earlier try has met an obstacle.
// Then a store that does not answer is one too.
func obstacle(err error, again bool) time.Duration {
	var e *Error
	switch {
	case again && isOutage(err):
		return 1
	case !errors.Is(err, ErrHeld) || !errors.As(err, &e):
		return 0
	case e.Holder == nil || e.Holder.Kept && (e.Holder.Partial || e.Holder.Abandoned):
		return 1
	case !e.Holder.Partial && !e.Holder.Abandoned:
		return 0
	}
	return max(e.Holder.Left, 1)
}

// tooFewFree reports whether nobody can get the name, because too few servers of a quorum are free.
// To ask that takes no server from anybody else.
func (c *Client) tooFewFree(ctx context.Context, name string, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	r, err := c.Inspect(ctx, name)
	return err == nil && len(r.Holders) == 0 && r.FreeIn > 0
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

package holdfast

import (
	"errors"
	"fmt"
	"time"
)

// sleepFor sleeps for d, or returns why to stop.
func (a *attempt) sleepFor(d time.Duration) error {
	if err := a.l.c.pause(a.limited, d); err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return a.timedOut()
}

// timedOut returns the error of a wait whose context has ended, or else whose WaitAtMost has
// passed.
func (a *attempt) timedOut() error {
	if a.ctx.Err() != nil {
		return cause(a.ctx)
	}
	return ErrHeld
}

// timedOutInQueue is timedOut for a place in the queue. A renewal proves the place every third of
// the TTL. If none has lately, nobody knows whether the lock is still held.
func (a *attempt) timedOutInQueue() error {
	proved := a.lastProof()
	if proved < 0 {
		return a.timedOut()
	}
	return a.timedOutSince(proved, a.l.c.TTL()/3+a.l.c.silentAfter())
}

// timedOutInLine is timedOut for a call in the line of a cohort. heard is when the lock was last known
// not to be free. -1: the exchange of the call that asks has not been answered.
func (a *attempt) timedOutInLine(heard time.Duration) error {
	silence := a.l.c.TTL()/3 + a.l.c.silentAfter()
	if heard < 0 {
		heard, silence = a.began, -1
	}
	if stop := a.timedOutSince(heard, silence); a.failure == nil || a.ctx.Err() != nil || stop == ErrHeld {
		return a.withFailure(stop)
	}
	return asOutage(explain(a.ctx, a.failure))
}

// timedOutSince is timedOut, if the last sign that the lock is held is not older than silence.
func (a *attempt) timedOutSince(sign, silence time.Duration) error {
	c := a.l.c
	age := c.coarseNow() - sign
	if a.ctx.Err() != nil || age <= silence {
		return a.timedOut()
	}
	c.mu.Lock()
	missed := c.renewalErr
	c.mu.Unlock()
	switch {
	case missed == nil:
		return fmt.Errorf("%w: the store has not answered for %v", ErrUncertain, round(age))
	case decided(missed):
		return missed
	}
	return asOutage(explain(a.ctx, missed))
}

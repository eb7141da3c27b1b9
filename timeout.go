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
	c := a.l.c
	proved := a.lastProof()
	age := c.coarseNow() - proved
	if a.ctx.Err() != nil || proved < 0 || age <= c.TTL()/3+c.silentAfter() {
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

package holdfast

import (
	"errors"
	"fmt"
	"time"
)

// rest sleeps for d, or says why not to go on.
func (a *attempt) rest(d time.Duration) error {
	if err := a.l.c.pause(a.limited, d); err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return a.late()
}

// late is the error of a wait whose context has ended, or else whose WaitAtMost has passed.
func (a *attempt) late() error {
	if a.ctx.Err() != nil {
		return cause(a.ctx)
	}
	return ErrHeld
}

// lateInLine is late for a place in line. A renewal proves it every third of the TTL. If none has,
// nobody knows any more whether the lock is held.
func (a *attempt) lateInLine() error {
	c := a.l.c
	proved := a.proved()
	age := c.soonest() - proved
	if a.ctx.Err() != nil || proved < 0 || age <= c.TTL()/3+c.usual() {
		return a.late()
	}
	c.mu.Lock()
	missed := c.missed
	c.mu.Unlock()
	switch {
	case missed == nil:
		return fmt.Errorf("%w: the store has not answered for %v", ErrUncertain, round(age))
	case decided(missed):
		return missed
	}
	return outage(explain(a.ctx, missed))
}

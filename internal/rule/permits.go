package rule

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// ErrMinHold: permits cannot be given back before the minimum hold of their grant is over.
var ErrMinHold = fmt.Errorf("%w release of permits: the minimum hold of their grant is not over", driver.ErrInvalid)

// Reduce implements driver.Session.Reduce.
func (e *Entry) Reduce(now time.Duration, id string, token uint64, n int) ([]Grant, error) {
	grants := e.Advance(now)
	if err := driver.CheckRemaining(n); err != nil {
		return grants, err
	}
	h, err := e.own(id, token)
	switch {
	case err != nil:
		return grants, err
	case h.Mode != driver.Permits:
		return grants, fmt.Errorf("%w: %s", driver.ErrKind, describe(e.Kind, e.Limit))
	case h.N <= n: // done before; the minimum hold does not matter, since a clock may be set back
		return grants, nil
	case h.KeepUntil > now:
		return grants, ErrMinHold
	}
	h.N = n
	return append(grants, e.Advance(now)...), nil
}

// SetLimit implements driver.Backend.SetLimit.
func (e *Entry) SetLimit(now time.Duration, limit int) ([]Grant, error) {
	grants := e.Advance(now)
	switch {
	case e.Kind != driver.Unused && e.Kind != driver.Semaphore:
		return grants, fmt.Errorf("%w: %s", driver.ErrKind, describe(e.Kind, e.Limit))
	case limit == 0 && !e.Set:
		return grants, driver.ErrGone
	case limit == 0:
		e.Set = false
	default:
		e.Kind, e.Limit, e.Set = driver.Semaphore, limit, true
		for i := range e.Line { // waiters asked under the old limit; they stay
			e.Line[i].Limit = limit
		}
	}
	return append(grants, e.Advance(now)...), nil
}

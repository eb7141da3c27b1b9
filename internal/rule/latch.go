package rule

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Interest is a request that awaits a latch.
type Interest struct {
	Session, ID string
}

// wakeLatch wakes all who await the latch, and removes their interests.
func (e *Entry) wakeLatch(token uint64) (grants []Grant) {
	for _, i := range e.Await {
		grants = append(grants, Grant{Session: i.Session, ID: i.ID, Token: token})
	}
	e.Await = nil
	return grants
}

// SetCount implements driver.Session.SetCount.
func (e *Entry) SetCount(now time.Duration, n int64) (bool, []Grant, error) {
	grants := e.Advance(now)
	switch e.Kind {
	case driver.Unused:
		e.Kind, e.Count, e.Done = driver.Latch, n, map[string]bool{}
		return true, grants, nil
	case driver.Latch:
		return false, grants, nil
	default:
		return false, grants, fmt.Errorf("%w: %s", driver.ErrKind, describe(e.Kind, e.Limit))
	}
}

// CountDown implements driver.Session.CountDown.
func (e *Entry) CountDown(now time.Duration, id string) (int64, []Grant, error) {
	grants := e.Advance(now)
	if e.Kind != driver.Latch {
		return 0, grants, driver.ErrGone
	}
	if !e.Done[id] {
		e.Done[id] = true
		e.Count = max(0, e.Count-1)
	}
	if e.Count == 0 {
		grants = e.wakeLatch(1)
	}
	return e.Count, grants, nil
}

// AskLatch implements driver.Session.Await; open reports whether the latch is at zero.
func (e *Entry) AskLatch(now time.Duration, id, session string) (open bool, grants []Grant, err error) {
	grants = e.Advance(now)
	switch {
	case e.Kind != driver.Latch:
		return false, grants, driver.ErrGone
	case e.Count == 0:
		return true, grants, nil
	}
	e.Await = slices.DeleteFunc(e.Await, func(i Interest) bool { return i.ID == id })
	e.Await = append(e.Await, Interest{session, id})
	return false, grants, nil
}

// Record implements driver.Backend.Inspect.
func (e *Entry) Record(now time.Duration, name string) driver.Record {
	r := driver.Record{
		Name: name, Kind: e.Kind, Limit: e.Limit, Set: e.Set, Count: e.Count, Token: e.Last, Waiting: len(e.Line),
	}
	for i := range e.Holds {
		h := &e.Holds[i]
		r.Holders = append(r.Holders, h.Describe(now))
	}
	for i := range e.Line[:min(len(e.Line), driver.MaxWaiters)] {
		p := &e.Line[i]
		r.Waiters = append(r.Waiters, driver.Holder{
			ID: p.ID, Mode: p.Mode, N: p.N, Age: max(0, now-p.Since), Left: p.Deadline - now, Info: p.Info,
		})
	}
	return r
}

// Describe returns the grant for people.
func (h *Hold) Describe(now time.Duration) driver.Holder {
	return driver.Holder{
		ID: h.ID, Mode: h.Mode, N: h.N, Token: h.Token, Age: max(0, now-h.Since),
		Left: max(0, h.Expires-now), Kept: h.Kept, Info: h.Info,
	}
}

// Package rule decides, without any I/O, who may have a name and who must wait.
//
// An [Entry] is the whole state of one name, and its methods are the rules R3 to R12 of package
// driver as plain code. memlock is this table behind a mutex. The other stores keep the same state
// in their own form, and tests compare them with it step by step.
package rule

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Entry is the state of one name. All times are readings of the store's clock. The zero Entry is an
// unused name. It is not safe for concurrent use.
type Entry struct {
	Kind  driver.Kind
	Limit int             // Semaphore
	Set   bool            // Semaphore: an operator has set Limit, so it stays
	Last  uint64          // the last token given out
	Holds []Hold          // in order of their tokens
	Line  []Place         // the queue, in order of arrival
	Count int64           // Latch: what is left
	Done  map[string]bool // Latch: IDs that have counted
	Await []Interest      // Latch: who waits for zero
	Mint  Mint

	// Dead reports whether the store knows that a session has ended: a grant to it goes to the next
	// waiter at once. Nil: the store cannot know.
	Dead func(session string) bool
}

// Mint returns the token of a grant that takes n tokens. The smallest of these, which is n-1 below it,
// is larger than last.
type Mint func(last uint64, n int) uint64

// Hold is a grant.
type Hold struct {
	driver.Request
	Session   string
	Token     uint64
	Since     time.Duration
	Expires   time.Duration // when the lease, or if Kept the kept time, expires
	KeepUntil time.Duration // when the minimum hold ends; 0: there is none
	Kept      bool          // no longer held: released or expired before KeepUntil
}

// Place is a place in the queue.
type Place struct {
	driver.Request
	Session  string
	Since    time.Duration
	Deadline time.Duration // when the place expires
}

// Grant is a hand-over that has to be pushed to the waiter; with Token 0, the waiter is to ask
// again.
type Grant struct {
	Session, ID string
	Token       uint64
	CallBack    bool // it is no hand-over: the session has the grant ID, which it is told that others want
}

// KindOf returns the kind that a request of this mode makes of a name.
func KindOf(m driver.Mode) driver.Kind {
	if m == driver.Permits {
		return driver.Semaphore
	}
	return driver.Lock
}

// Fits reports whether a request may be granted next to the existing grants. holders counts them
// (kept ones included), used sums their N, and exclusive says whether one of them is exclusive. It
// does not consider the queue.
func Fits(mode driver.Mode, n, limit, holders, used int, exclusive bool) bool {
	switch mode {
	case driver.Exclusive:
		return holders == 0
	case driver.Shared:
		return !exclusive
	default:
		return used+n <= limit
	}
}

// Used reports whether the name is held, kept, waited for, a latch, or has a limit that was set.
func (e *Entry) Used() bool {
	return len(e.Holds) > 0 || len(e.Line) > 0 || e.Kind == driver.Latch || e.Set
}

// Fits reports whether r may be granted next to the grants of e.
func (e *Entry) Fits(r *driver.Request) bool {
	used, exclusive := 0, false
	for i := range e.Holds {
		used += e.Holds[i].N
		exclusive = exclusive || e.Holds[i].Mode == driver.Exclusive
	}
	return Fits(r.Mode, r.N, e.Limit, len(e.Holds), used, exclusive)
}

// Advance lets time pass: it removes expired leases and places, and grants to the queue in order,
// until a request does not fit. Every other method begins with it.
func (e *Entry) Advance(now time.Duration) (grants []Grant) {
	e.Holds = slices.DeleteFunc(e.Holds, func(h Hold) bool {
		return h.Expires <= now && h.KeepUntil <= now
	})
	for i := range e.Holds {
		if h := &e.Holds[i]; h.Expires <= now {
			h.Expires, h.Kept = h.KeepUntil, true
		}
	}
	e.Line = slices.DeleteFunc(e.Line, func(p Place) bool { return p.Deadline <= now })
	for len(e.Line) > 0 && e.Fits(&e.Line[0].Request) {
		p := e.Line[0]
		e.Line = slices.Delete(e.Line, 0, 1)
		// The lease counts from the waiter's last renewal. So what the waiter believes is true,
		// because it counts from when it sent that renewal. And if the waiter is dead, the lease
		// expires sooner.
		p.CallBack = false // others may be behind it already
		token := e.grant(now, &p.Request, p.Session, p.Deadline)
		if e.Dead != nil && e.Dead(p.Session) {
			e.Holds = e.Holds[:len(e.Holds)-1]
			continue
		}
		grants = append(grants, Grant{Session: p.Session, ID: p.ID, Token: token})
	}
	if !e.Used() {
		e.Kind, e.Limit = driver.Unused, 0
	}
	return grants
}

func (e *Entry) grant(now time.Duration, r *driver.Request, session string, expires time.Duration) uint64 {
	e.Last = e.Mint(e.Last, r.Block())
	h := Hold{Request: *r, Session: session, Token: e.Last, Since: now, Expires: expires}
	if r.MinHold > 0 { // otherwise a clock that is set back could create a minimum hold
		h.KeepUntil = now + r.MinHold
	}
	e.Holds = append(e.Holds, h)
	return e.Last
}

// Acquire implements driver.Session.Acquire. A zero token means not yet (or not at all, if the
// request does not wait), with ahead requests before it.
func (e *Entry) Acquire(now time.Duration, r *driver.Request, session string, ttl time.Duration) (
	token uint64, ahead int, grants []Grant, err error) {
	grants = e.Advance(now)
	lease := driver.LeaseWithin(r.Lease, ttl)
	if h := e.find(r.ID); h != nil {
		h.Expires = extended(h.Expires, now, lease, ttl)
		return h.Token, 0, grants, nil
	}
	if i := e.place(r.ID); i >= 0 {
		e.Line[i].Deadline = extended(e.Line[i].Deadline, now, lease, ttl)
		return 0, i, e.callBack(grants), nil
	}
	switch asSet := r.Mode == driver.Permits && r.Limit == 0; {
	case asSet && !e.Set && (e.Kind == driver.Unused || e.Kind == driver.Semaphore):
		return 0, 0, grants, driver.ErrNoLimit
	case !e.Used():
		e.Kind, e.Limit = KindOf(r.Mode), r.Limit
	case e.Kind != KindOf(r.Mode) || e.Limit != r.Limit && !asSet:
		return 0, 0, grants, fmt.Errorf("%w: %s", driver.ErrKind, describe(e.Kind, e.Limit))
	}
	if len(e.Line) == 0 && e.Fits(r) {
		return e.grant(now, r, session, now+lease), 0, grants, nil
	}
	if r.Wait {
		e.Line = append(e.Line, Place{Request: *r, Session: session, Since: now, Deadline: now + lease})
		return 0, len(e.Line) - 1, e.callBack(grants), nil
	}
	return 0, len(e.Line), grants, nil
}

// callBack adds the call-back of the grant that a place in the queue waits for, if it wants one (R22).
func (e *Entry) callBack(grants []Grant) []Grant {
	for i := range e.Holds {
		if h := &e.Holds[i]; h.CallBack && !h.Kept {
			grants = append(grants, Grant{Session: h.Session, ID: h.ID, CallBack: true})
		}
	}
	return grants
}

// extended returns when a lease that would end at end ends after it was renewed. A renewal that
// arrives late must not make a lease end earlier, on which a later one relies. If the clock was set
// back, end may be too far away: no lease is longer than ttl.
func extended(end, now, lease, ttl time.Duration) time.Duration {
	return max(now+lease, min(end, now+ttl))
}

// Retry returns how long from now the first of the leases (or kept times) expires; 0 if there are
// no grants.
func (e *Entry) Retry(now time.Duration) (d time.Duration) {
	for i := range e.Holds {
		if left := e.Holds[i].Expires - now; d == 0 || left < d {
			d = left
		}
	}
	return d
}

// First describes the oldest grant, or returns nil.
func (e *Entry) First(now time.Duration) *driver.Holder {
	if len(e.Holds) == 0 {
		return nil
	}
	h := e.Holds[0].Describe(now)
	return &h
}

// Cancel implements driver.Session.Cancel. It removes the places first, so that Advance grants
// nothing to them.
func (e *Entry) Cancel(now time.Duration, ids ...string) []Grant {
	given := make(map[string]bool, len(ids))
	for _, id := range ids {
		given[id] = true
	}
	e.Line = slices.DeleteFunc(e.Line, func(p Place) bool { return given[p.ID] })
	e.Await = slices.DeleteFunc(e.Await, func(i Interest) bool { return given[i.ID] })
	grants := e.Advance(now)
	e.Holds = slices.DeleteFunc(e.Holds, func(h Hold) bool { return given[h.ID] && !h.Kept })
	return append(grants, e.Advance(now)...)
}

// Leave ends a session: it removes its places and releases its grants.
func (e *Entry) Leave(now time.Duration, session string) []Grant {
	e.Line = slices.DeleteFunc(e.Line, func(p Place) bool { return p.Session == session })
	e.Await = slices.DeleteFunc(e.Await, func(i Interest) bool { return i.Session == session })
	for i := range e.Holds {
		if h := &e.Holds[i]; h.Session == session && !h.Kept {
			h.Kept, h.Expires = true, h.KeepUntil
		}
	}
	return e.Advance(now)
}

// Release implements driver.Session.Release.
func (e *Entry) Release(now time.Duration, id string, token uint64, keep time.Duration) ([]Grant, error) {
	grants := e.Advance(now)
	h, err := e.own(id, token)
	if err != nil {
		return grants, err
	}
	h.Kept, h.KeepUntil = true, max(h.KeepUntil, now+keep)
	h.Expires = h.KeepUntil
	stays := h.Expires > now
	grants = append(grants, e.Advance(now)...)
	if stays && len(e.Line) > 0 { // the first waiter has to learn when to ask again
		grants = append(grants, Grant{Session: e.Line[0].Session, ID: e.Line[0].ID})
	}
	return grants, nil
}

// Renew implements driver.Session.Renew for one hold; State 0 means no change.
func (e *Entry) Renew(now time.Duration, hold driver.Hold, ttl time.Duration) (driver.Change, []Grant) {
	grants := e.Advance(now)
	lease := driver.LeaseWithin(hold.Lease, ttl)
	if hold.Token != 0 {
		h, err := e.own(hold.ID, hold.Token)
		if err != nil {
			return driver.Change{State: driver.Gone}, grants
		}
		h.Expires = extended(h.Expires, now, lease, ttl)
		return driver.Change{}, grants
	}
	if h := e.find(hold.ID); h != nil {
		h.Expires = extended(h.Expires, now, lease, ttl)
		return driver.Change{State: driver.Granted, Token: h.Token}, grants
	}
	if i := e.place(hold.ID); i >= 0 {
		e.Line[i].Deadline = extended(e.Line[i].Deadline, now, lease, ttl)
		return driver.Change{State: driver.Waiting, Retry: e.Retry(now), Ahead: i}, e.callBack(grants)
	}
	return driver.Change{State: driver.Gone}, grants
}

// Downgrade implements driver.Session.Downgrade.
func (e *Entry) Downgrade(now time.Duration, id string, token uint64) ([]Grant, error) {
	grants := e.Advance(now)
	h, err := e.own(id, token)
	if err != nil {
		return grants, err
	}
	if h.Mode == driver.Permits {
		return grants, fmt.Errorf("%w: a semaphore's permits cannot be downgraded", driver.ErrKind)
	}
	h.Mode = driver.Shared
	return append(grants, e.Advance(now)...), nil
}

// Adopt implements driver.Session.Adopt.
func (e *Entry) Adopt(now time.Duration, old string, token uint64, id, info, session string, ttl time.Duration) (
	[]Grant, error) {
	grants := e.Advance(now)
	h, err := e.own(old, token)
	if err != nil {
		if h, _ = e.own(id, token); h == nil { // otherwise it has been adopted
			return grants, err
		}
	}
	if id != h.ID && (e.find(id) != nil || e.place(id) >= 0) {
		return grants, fmt.Errorf("%w id: it belongs to another request of the name", driver.ErrInvalid)
	}
	h.ID, h.Info, h.Session, h.Expires, h.CallBack = id, info, session, now+ttl, false
	return grants, nil
}

// Break implements driver.Backend.Break. The next token is larger in any case.
func (e *Entry) Break(now time.Duration, token uint64) ([]Grant, error) {
	grants := e.Advance(now)
	i := slices.IndexFunc(e.Holds, func(h Hold) bool { return h.Token == token })
	if i < 0 {
		return grants, driver.ErrGone
	}
	e.Holds = slices.Delete(e.Holds, i, i+1)
	return append(grants, e.Advance(now)...), nil
}

// RemoveLatch implements driver.Backend.RemoveLatch.
func (e *Entry) RemoveLatch(now time.Duration) ([]Grant, error) {
	grants := e.Advance(now)
	switch e.Kind {
	case driver.Unused:
		return grants, driver.ErrGone
	case driver.Latch:
		grants = append(grants, e.wakeLatch(0)...)
		e.Kind, e.Count = driver.Unused, 0
		return grants, nil
	default:
		return grants, fmt.Errorf("%w: %s", driver.ErrKind, describe(e.Kind, e.Limit))
	}
}

// own returns the grant that its owner names, or why it does not exist.
func (e *Entry) own(id string, token uint64) (*Hold, error) {
	if h := e.find(id); h != nil && h.Token == token {
		return h, nil
	}
	if e.Last > token && slices.ContainsFunc(e.Holds, func(h Hold) bool { return !h.Kept }) {
		return nil, driver.ErrTaken
	}
	return nil, driver.ErrGone
}

// find returns the grant of a request, unless it is kept: nobody holds it then.
func (e *Entry) find(id string) *Hold {
	for i := range e.Holds {
		if e.Holds[i].ID == id && !e.Holds[i].Kept {
			return &e.Holds[i]
		}
	}
	return nil
}

func (e *Entry) place(id string) int {
	return slices.IndexFunc(e.Line, func(p Place) bool { return p.ID == id })
}

func describe(k driver.Kind, limit int) string {
	switch k {
	case driver.Lock:
		return "it is a lock"
	case driver.Semaphore:
		return fmt.Sprintf("it is a semaphore of %d", limit)
	case driver.Latch:
		return "it is a latch"
	default:
		return "it is not in use"
	}
}

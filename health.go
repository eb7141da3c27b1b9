package holdfast

import (
	"cmp"
	"fmt"
	"runtime/pprof"
	"slices"
	"time"
)

// HeldLock describes a lease that a client holds. Leases that are borrowed from it (Reentrant) are
// not listed.
type HeldLock struct {
	Op      string // of the call that took it: "lock", "campaign", …
	Name    string
	Mode    Mode
	Permits int // of a semaphore; 1 otherwise
	Token   uint64
	Since   time.Time     // when it was granted, or adopted
	Left    time.Duration // as Lease.Left
}

// WantedLock describes a call that waits for a lock.
type WantedLock struct {
	Op      string // "lock", "read lock", "acquire", "campaign", …
	Name    string
	Mode    Mode
	Permits int // of a semaphore; 1 otherwise
	Since   time.Time
	Ahead   int // how many requests are before it in the queue, as last heard; -1: it has no place yet
}

// Held returns the leases of this client that have not ended, the oldest first. It asks nobody, and
// takes time in proportion to their number. A lease that somebody forgot to release is the first, and
// the profile "holdfast.held" has the stack of the call that took it: see Profiles.
func (c *Client) Held() []HeldLock {
	if c.usable() != nil {
		return nil
	}
	now := c.now()
	c.mu.Lock()
	all := make([]HeldLock, 0, len(c.leases))
	for _, own := range c.leases {
		for l := range own.callers() {
			if until := min(l.until, own.until); until > now {
				all = append(all, HeldLock{l.op, l.req.Name, modeOf(l.req.Mode), l.req.N, l.token, l.since, until - now})
			}
		}
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b HeldLock) int { return a.Since.Compare(b.Since) })
	return all
}

// Wanted returns the calls of this client that wait for a lock, the oldest first. A call whose first
// exchange has not been answered is not yet one of them. Wanted asks nobody, and takes time in
// proportion to their number.
func (c *Client) Wanted() []WantedLock {
	if c.usable() != nil {
		return nil
	}
	c.mu.Lock()
	counted := map[*cohort]struct{}{} // not c.cohorts: partReaders has taken some out
	for a := range c.attempts {
		k := a.l.cohort
		if _, done := counted[k]; k != nil && !done {
			counted[k] = struct{}{}
			k.countLine()
		}
	}
	all := make([]WantedLock, 0, len(c.attempts))
	for a := range c.attempts {
		r, ahead := &a.l.req, a.ahead
		if !a.inQueue {
			ahead = -1
		}
		all = append(all, WantedLock{a.l.op, r.Name, modeOf(r.Mode), r.N, c.start.Add(a.began), ahead})
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b WantedLock) int { return a.Since.Compare(b.Since) })
	return all
}

// Health says how a client is, by what it knows.
type Health struct {
	Store string // the kind of store: "redis", "sqlite", "memory", …

	// Err is why the client cannot rely on its store now; nil if it knows of nothing. ErrClosed: the
	// client is closed. ErrUnavailable, ErrUncertain, ErrRefused: the session is over and no other could
	// be opened yet, the last renewal failed, or the one under way has not been answered for long.
	Err error

	// Answered is about when the store last answered a question about a lock: it has opened the session,
	// granted a lock or said that it is not free, or renewed leases and places in the queue. A client
	// that holds and waits for nothing asks nothing, so it does not notice an outage: Err is nil then,
	// and Answered is old. Inspect asks.
	Answered time.Time

	Held      int           // leases, borrowed ones not counted
	Waiting   int           // calls that wait
	Offered   int           // leases that were handed off, and not adopted yet
	HeldFor   time.Duration // by the oldest lease
	WaitedFor time.Duration // by the oldest call that waits
	Left      time.Duration // the shortest of all leases, as Lease.Left; 0 if there is none
	Dropped   uint64        // calls of the Logger and the Observer, because they were too slow or panicked
}

// Health returns how the client is. It asks nobody, and takes time in proportion to the number of
// leases: a readiness probe may call it. It is for probes and displays; a holder asks its lease.
func (c *Client) Health() Health {
	if err := c.usable(); err != nil {
		return Health{Err: err}
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	h := Health{Store: c.backend.Name(), Err: c.trouble(now), Answered: c.start.Add(c.answered),
		Waiting: len(c.attempts), Offered: len(c.offers)}
	oldest := now
	for a := range c.attempts {
		oldest = min(oldest, a.began)
	}
	h.WaitedFor = now - oldest
	for _, own := range c.leases {
		for l := range own.callers() {
			until := min(l.until, own.until)
			if until <= now {
				continue
			}
			h.HeldFor = max(h.HeldFor, time.Since(l.since))
			if h.Held++; h.Held == 1 || until-now < h.Left {
				h.Left = until - now
			}
		}
	}
	for _, q := range []*callQueue{&c.logCalls, &c.observerCalls, &c.exchangeCalls} {
		h.Dropped += q.totalDropped()
	}
	return h
}

// trouble returns why the client cannot rely on its store. Called with c.mu held.
func (c *Client) trouble(now time.Duration) error {
	switch {
	case c.closed:
		return ErrClosed
	case c.renewalErr != nil && decided(c.renewalErr):
		return c.renewalErr
	case c.session.Load().over():
		return asOutage(cmp.Or(c.renewalErr, ErrClosed))
	case c.renewalErr != nil:
		return asOutage(c.renewalErr)
	case c.renewalSent != 0 && now-c.renewalSent > c.silentAfter():
		return fmt.Errorf("%w: a renewal sent %v ago was not answered", ErrUncertain, round(now-c.renewalSent))
	}
	return nil
}

// noteAnswered notes that an exchange that was sent at sent has been answered.
func (c *Client) noteAnswered(sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = max(c.answered, sent)
}

// startAttempt notes that a waits.
func (c *Client) startAttempt(a *attempt) {
	c.mu.Lock()
	c.attempts[a] = struct{}{}
	c.mu.Unlock()
	if c.profiles.Waiting != nil {
		c.profiles.Waiting.Add(a, 3)
	}
}

// endAttempt notes that a has ended.
func (c *Client) endAttempt(a *attempt) {
	c.mu.Lock()
	delete(c.attempts, a)
	c.mu.Unlock()
	if c.profiles.Waiting != nil {
		c.profiles.Waiting.Remove(a)
	}
	if w := a.end; w != nil {
		w.Holder = a.lastHolder()
	}
}

// Profiles are pprof profiles, of one client or of several: Held has the stacks of the calls that took
// the leases that are held now, Waiting those of the calls that wait. A lease that nobody has released
// is found there. Either may be nil. A profile makes a Lock and its Release slower by about a
// microsecond. A client adds only values of its own, and removes them when a lease or a wait ends.
//
// Package observe has the profiles of a whole process, "holdfast.held" and "holdfast.waiting".
type Profiles struct{ Held, Waiting *pprof.Profile }

// addHeld adds l to the profile of leases, with the stack of the call that took it.
func (c *Client) addHeld(l *Lease) {
	if c.profiles.Held == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended == nil { // otherwise it would stay there
		c.profiles.Held.Add(l, 2)
	}
}

// removeHeld removes l, which has ended. Called with c.mu held.
func (c *Client) removeHeld(l *Lease) {
	if c.profiles.Held != nil {
		c.profiles.Held.Remove(l)
	}
}

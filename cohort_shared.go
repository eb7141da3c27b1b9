package holdfast

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Readers of one client that wait together share a grant. A cohort of them has an asker and a line, as any
// other. When the asker is granted while calls are in line, a lease that no caller has stands for the grant:
// the shared grant. The asker and all calls of the line are its readers. A reader's lease is like one that
// was borrowed from the shared grant: it has the same token and ends no later. The store has one record,
// which the last reader gives back.
//
//	a call comes              it joins the line of the asker; else it is the asker
//	the asker is granted      the line joins the grant; calls that come later ask for another one
//	a call for writing comes  calls for reading that come later are of another cohort: the asker's place
//	                          is before the writer
//	the last reader leaves    the grant goes back
//	the grant is lost         so are the leases of all readers; it goes back when each has called Release
//
// All readers have asked before the client heard of the grant, which the store may have made before that.
// As long as the grant exists, the store lets no writer in. So the token is larger than that of each writer
// whose lease began before any of the readers asked, and smaller than that of each later one. A reader under
// another grant may have got a larger token before one of these asked.
//
// A writer of another client that has queued behind the asker waits for readers that came later, but they
// begin with the asker.

// reads reports whether k is a cohort of readers.
func (k *cohort) reads() bool { return k.key.mode == driver.Shared }

// shareGrant makes l, whose request has been granted, the first reader of its grant, and lets in the
// line. If there is none, l has the grant for itself, and shareGrant returns false. Called with c.mu held.
func (l *Lease) shareGrant(trusted time.Duration) bool {
	c, k := l.c, l.cohort
	if k.line.n == 0 {
		l.cohort = nil
		c.forgetCohort(k)
		return false
	}
	g := &Lease{c: c, session: l.session, op: l.op, req: l.req, number: l.number, token: l.token,
		grantToken: l.grantToken, since: l.since, latest: forever, unanswered: l.unanswered, pushed: l.pushed,
		kept: sharedGrant, index: -1, inner: map[*Lease]struct{}{}}
	g.extend(trusted)
	c.watchLease(g)
	l.unanswered, l.pushed = false, false
	g.join(l)
	for m := k.line.head; m != nil; m = k.line.head {
		g.join(m.l)
		k.first(turn{passed: true})
	}
	c.forgetCohort(k)
	return true
}

// join makes l a reader of g, a shared grant. Called with c.mu held.
func (g *Lease) join(l *Lease) {
	l.outer, l.cohort, l.session, l.number, l.req.ID, l.req.Info = g, nil, g.session, g.number, g.req.ID, g.req.Info
	l.token, l.grantToken, l.since, l.latest = g.token, g.grantToken, time.Now(), forever
	l.extend(forever)
	g.inner[l] = struct{}{}
	g.readers++
}

// partReaders makes calls for reading that come from now on a cohort of their own: a call for writing has
// come. Called with c.mu held.
func (c *Client) partReaders(name string) {
	for _, k := range c.readers[name] {
		delete(c.cohorts, k.key)
	}
	delete(c.readers, name)
}

// unlistCohort makes calls that come from now on form another cohort than k. Called with c.mu held.
func (c *Client) unlistCohort(k *cohort) {
	if c.cohorts[k.key] != k {
		return // as partReaders has left it
	}
	delete(c.cohorts, k.key)
	if !k.reads() {
		return
	}
	name := k.key.name
	all := slices.DeleteFunc(c.readers[name], func(x *cohort) bool { return x == k })
	if c.readers[name] = all; len(all) == 0 {
		delete(c.readers, name)
	}
}

// shared returns the shared grant that l is a reader of; nil: none.
func (l *Lease) shared() *Lease {
	if l.outer != nil && l.outer.kept == sharedGrant {
		return l.outer
	}
	return nil
}

// finish ends l, with which its caller has finished, unless it has ended before: then prior is why. If l was
// the last reader of a shared grant, finish returns that, which has ended: the caller gives it back. Both are
// one step, because Close and the watcher end a grant that has no readers as well.
func (l *Lease) finish() (prior *Error, shared *Lease) {
	c, why := l.c, &Error{Op: "use", Name: l.req.Name, Err: ErrReleased}
	var toCancel []contexts
	c.mu.Lock()
	if prior = l.ended; prior == nil {
		toCancel = c.endTree(l, why, nil)
	}
	if prior == nil || errors.Is(prior, ErrLost) {
		shared = l.leaveGrant()
	}
	c.mu.Unlock()
	cancelAll(toCancel, why)
	return prior, shared
}

// noticeExpiry ends the grant that l shares with other readers, if it has expired and the watcher has not
// noticed: the process was stopped, or the machine has slept. The release of l, which follows, asks nobody.
func (l *Lease) noticeExpiry() {
	c, g := l.c, l.shared()
	if g == nil {
		return
	}
	c.mu.Lock()
	over := l.ended == nil && g.readers > 1 && (g.session.over() || c.trueNow(time.Now()) >= g.trusted)
	c.mu.Unlock()
	if over {
		_ = l.Err()
	}
}

// leaveGrant notes that l is over, if it is a reader. If it was the last one, leaveGrant returns the shared
// grant, which has ended: the caller gives it back. Called with c.mu held.
func (l *Lease) leaveGrant() *Lease {
	g := l.shared()
	if g == nil || l.leftGrant {
		return nil
	}
	l.leftGrant = true
	if g.readers--; g.readers > 0 {
		return nil
	}
	if g.ended == nil {
		l.c.endTree(g, &Error{Op: "use", Name: g.req.Name, Err: ErrReleased}, nil)
	}
	return g
}

// takeReaders returns the leases that ended with l, a shared grant; none for any other lease.
func (l *Lease) takeReaders() []*Lease {
	if l.kept != sharedGrant {
		return nil
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	readers := slices.SortedFunc(maps.Keys(l.inner), func(a, b *Lease) int { return a.since.Compare(b.since) })
	l.inner = nil
	return readers
}

// callers yields the leases of callers that l stands for: its readers, l itself, or none if it is borrowed or idle.
// Called with c.mu held.
func (l *Lease) callers() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		switch {
		case l.kept == sharedGrant:
			for r := range l.inner {
				if !yield(r) {
					return
				}
			}
		case l.kept != idleGrant && l.outer == nil:
			yield(l)
		}
	}
}

// isOwn reports whether l is a lease of a caller that was not borrowed from another one.
func (l *Lease) isOwn() bool { return l.kept != sharedGrant && (l.outer == nil || l.shared() != nil) }

// wholeGrant returns the lease that stands for l's grant at the store, and why that cannot be given to
// somebody else: op says how. Called with c.mu held.
func (l *Lease) wholeGrant(op string) (*Lease, error) {
	switch g := l.shared(); {
	case g == nil && l.outer != nil:
		return nil, fmt.Errorf("%w: the lease is borrowed; %s the one that it was borrowed from", ErrInvalid, op)
	case g == nil:
		return l, nil
	case g.readers > 1:
		return nil, fmt.Errorf("%w: %d calls of this client read under one grant; with the option Fair each has its own",
			ErrInvalid, g.readers)
	default:
		return g, nil
	}
}

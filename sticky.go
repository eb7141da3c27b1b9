package holdfast

import (
	"container/heap"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// sticky is what a cohort needs for the option Sticky (docs/adr/0016-sticky-leases.md). The grant of such
// a cohort stays with the client while no call has it. Then it is idle, and the idle lease stands for it:
// renewals, the watcher and Close treat it like any lease, and its end is not reported.
//
//	a release              passes the lock on, or makes the grant idle
//	a call comes           it takes an idle grant, with the next token of the block, if the grant is
//	                       trusted on a clock that counts sleep
//	somebody waits         an idle grant goes back to the store; one in use does so at its release,
//	                       or after the passes that every cohort may make
//	nobody takes it for d  the idle grant goes back
//	the block is used up   the grant goes back, and then the first of the line asks
//	the grant is old       the same: a client that gets no call-back does not keep a name for ever
//
// If the lock was not free when the call asked, the cohort acts as if somebody waited from the beginning:
// the store may have handed the lock over with others behind.
//
// All fields are guarded by Client.mu.
type sticky struct {
	stick      time.Duration // Sticky; 0: the cohort keeps no idle grant
	idle       *Lease        // of the present grant; made when it is first needed
	calledBack bool          // somebody waits for the present grant
	askID      string        // of the request of the call that asks
	wanted     bool          // its grant was called back before the answer came
	full       bool          // the last grant was used for as many takes, or for as long, as it could be
	keepFor    time.Duration // a grant that is older goes back at its next release
	idleTill   time.Duration // when the idle grant goes back, on coarseNow
	idleTimer  *time.Timer   // looks whether that time has come
	armed      bool          // idleTimer runs
	looksAt    time.Duration // when it ends then
	leaving    *task         // releases the idle grant, which nobody has taken for d; the first of the line asks after it
	released   *Error        // why leases end whose grant becomes idle; all of them share it
}

// maxFull is how many unused cohorts a client keeps at most, so that their next grant has a block of the
// right size.
const maxFull = 1024

// keepFull is called when k is kept although nobody uses it. If that has happened often, it drops all others
// that nobody uses. Called with c.mu held.
func (c *Client) keepFull(k *cohort) {
	if c.fulls++; c.fulls <= maxFull {
		return
	}
	for _, x := range c.cohorts {
		if x != k && x.full && !x.inUse() {
			x.full = false
			c.forgetCohort(x)
		}
	}
	c.fulls = 1
}

// kept says what Sticky has to do with a lease, or that it is a shared grant.
type kept uint8

const (
	notKept     kept = iota
	mayBeKept        // the option is set
	freeGrant        // and the first answer to its request was the grant
	idleGrant        // it stands for a grant that no call has
	sharedGrant      // it stands for a grant that readers share: cohort_shared.go
)

// isNobodys reports whether l only stands for a grant: no caller has it.
func (l *Lease) isNobodys() bool { return l.kept == idleGrant || l.kept == sharedGrant }

func (o *options) kept() kept {
	if o.sticky > 0 {
		return mayBeKept
	}
	return notKept
}

// startFree is startLease for a grant that the store has given at once.
func (c *Client) startFree(l *Lease, o *options, token uint64, proof time.Duration) bool {
	if l.kept == notKept {
		return c.startLease(l, o, token, proof)
	}
	l.kept = freeGrant
	started := c.startLease(l, o, token, proof)
	if !started {
		l.kept = mayBeKept
	}
	return started
}

// sticks reports whether the present grant stays with the client. Called with c.mu held.
func (k *cohort) sticks() bool { return k.stick > 0 && !k.calledBack }

// isIdle reports whether no call has the present grant. Called with c.mu held.
func (k *cohort) isIdle() bool { return k.idle != nil && k.current == k.idle && k.idle.ended == nil }

// startSticky makes k a cohort of Sticky, if d is not 0. Called with c.mu held.
func (c *Client) startSticky(k *cohort, d time.Duration) {
	if k.stick = d; d > 0 {
		c.stickies[k.key.name] = append(c.stickies[k.key.name], k)
		c.sticking.Add(1)
		k.released = &Error{Op: "use", Name: k.key.name, Err: ErrReleased}
	}
}

// stopSticky is called before k is used for something else, with c.mu held.
func (c *Client) stopSticky(k *cohort) {
	if k.stick == 0 {
		return
	}
	name := k.key.name
	all := slices.DeleteFunc(c.stickies[name], func(x *cohort) bool { return x == k })
	if c.stickies[name] = all; len(all) == 0 {
		delete(c.stickies, name)
	}
	c.sticking.Add(-1)
	if k.armed {
		k.idleTimer.Stop()
	}
}

// startStick begins with l's grant, the present one. Called with c.mu held.
func (k *cohort) startStick(l *Lease) {
	k.idle, k.leaving, k.full, k.keepFor = nil, nil, false, max(k.stick, l.session.ttl)
	k.calledBack = l.kept != freeGrant || k.wanted
	if k.calledBack {
		k.boundPasses(l.c)
	}
}

// spent reports whether the present grant goes back at the release under way, whoever waits. Called with
// c.mu held.
func (k *cohort) spent(now time.Duration) bool { return k.next > k.last || now-k.began >= k.keepFor }

// boundPasses leaves the present grant no more passes than one that somebody waits for. Called with
// c.mu held.
func (k *cohort) boundPasses(c *Client) {
	if left := uint64(max(c.passes-k.passes, 0)); k.last >= k.next+left {
		k.last = k.next + left - 1
	}
}

// awake is when the clock that counts sleep was read last: what it showed, and the clocks of Go then.
type awake struct {
	now, monotonic, offset time.Duration // offset: of the wall clock to the monotonic one
}

// awakeFor is for how long a reading of the clock that counts sleep stands for another one.
const awakeFor = time.Millisecond

// trueNow returns c.now at t, which is time.Now, or up to 2 ms more. The clock that counts sleep costs a
// system call, which would be the largest part of a take. So a reading is used for a millisecond, as long
// as the wall clock shows no sleep: when a machine goes on, its wall clock has moved against the
// monotonic one. Whoever sets it back by as much within that millisecond would hide a sleep; nobody else
// relies on it. Called with c.mu held.
func (c *Client) trueNow(t time.Time) time.Duration {
	a, monotonic := &c.awake, t.Sub(c.start)
	offset := time.Duration(t.UnixNano()) - monotonic
	if moved := (offset - a.offset).Abs(); monotonic-a.monotonic < c.awakeFor && moved < c.awakeFor {
		return a.now + monotonic - a.monotonic + c.awakeFor
	}
	*a = awake{c.boot() - c.boot0, monotonic, offset}
	return a.now
}

// noticeSleep makes coarseNow count a sleep of the machine that the watcher has not noticed. Called with
// c.mu held.
func (c *Client) noticeSleep() {
	if c.trueNow(time.Now()) > c.coarseNow()+4*c.awakeFor {
		c.now()
	}
}

// takeIdle makes l, which is about to ask, the lease of the idle grant, and reports whether it could: no
// call gets a grant that is not trusted any more. Called with c.mu held.
func (l *Lease) takeIdle() bool {
	c, k := l.c, l.cohort
	idle := k.idle
	now := time.Now()
	if c.closed || idle.session.over() || k.next > k.last || c.trueNow(now) >= idle.trusted {
		return false
	}
	idle.ended = errTaken
	heap.Remove(&c.leases, idle.index)
	idle.passTo(l, now)
	return true
}

// errTaken is why an idle lease has ended that a call has taken.
var errTaken = &Error{Op: "use", Err: ErrReleased}

// keepIdle makes the grant of l, which has been released, idle. Called with c.mu held.
func (l *Lease) keepIdle(now time.Duration) {
	c, k := l.c, l.cohort
	x := k.idle
	if x == nil {
		x = &Lease{c: c, session: l.session, op: l.op, req: l.req, number: l.number, grantToken: l.grantToken,
			token: l.grantToken, since: l.since, kept: idleGrant, cohort: k}
		k.idle = x
	}
	x.ended, x.index, x.latest = nil, -1, forever
	x.unanswered, x.pushed = l.unanswered, l.pushed
	x.extend(l.trusted)
	c.watchLease(x)
	k.current = x
	k.idleTill = now + k.stick
	k.armIdle(c, now)
}

// releaseIdle is release, if that makes the grant of l idle and ends nothing but l. It returns false if
// release has more to do.
func (l *Lease) releaseIdle() bool {
	c, k := l.c, l.cohort
	if k == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ended != nil || l.cancels != nil || l.inner != nil || k.current != l || k.asking || k.line.n > 0 || !k.sticks() {
		return false
	}
	now := c.coarseNow()
	if k.spent(now) || !l.mayKeep(now) {
		return false
	}
	c.endTree(l, k.released, nil)
	l.releaseCalled = true
	l.keepIdle(now)
	return true
}

// calledBack is driver.SessionConfig.Wanted: somebody waits for a grant, or may do so. Nothing is taken
// away: what has been heard makes the client give a grant back earlier.
func (c *Client) calledBack(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range slices.Clone(c.stickies[name]) {
		switch {
		case k.current != nil && k.current.req.ID == id:
			c.callBack(k)
		case k.asking && k.askID == id: // the answer with the grant is still on its way
			k.wanted = true
		}
	}
}

// callBack notes that somebody waits for the present grant of k. Called with c.mu held.
func (c *Client) callBack(k *cohort) {
	if k.isIdle() {
		c.leave(k)
	}
	if k.calledBack || k.leaves() {
		return
	}
	k.calledBack = true // also of an idle grant that could not go back at once
	k.boundPasses(c)
	switch {
	case k.asking || k.full:
	case k.mayPass(c.coarseNow()):
		k.awaitTime(c)
	default:
		k.last = 0 // as in passedTime
		c.nextAsker(k)
	}
}

// checkSticky refuses Sticky where the store or the other options rule it out.
func (c *Client) checkSticky(r *driver.Request, o *options) {
	store := c.backend.Name()
	switch k := c.backend.Kinds(); {
	case r.Mode != driver.Exclusive:
		o.notSticky("a semaphore or a read lock")
	case !k.CallBack || !k.Blocks:
		if k.Setting != "" {
			store += " with " + k.Setting
		}
		o.refuse("Sticky: this store (%s) calls no idle grants back; memory and Redis (one server, Sentinel, Cluster) do", store)
	case o.fair:
		o.refuse("Sticky beside Fair: calls that take an idle grant do not queue")
	case r.MinHold > 0:
		o.refuse("Sticky beside MinHold (OnlyOne has it, too): calls that take an idle grant are no new grants")
	case o.maxHold > 0:
		o.refuse("Sticky beside MaxHold: the store ends a grant by its maximum hold, and many calls take a sticky one")
	case o.every > 0:
		o.refuse("Sticky beside Poll: a poll does not queue, so it calls no grant back; use WaitAtMost")
	case c.passes == 0:
		o.refuse("Sticky with a client whose Config has a History, which wants each grant on record, or Passes below 0")
	}
}

// notSticky refuses Sticky for what.
func (o *options) notSticky(what string) {
	if o.sticky > 0 {
		o.refuse("Sticky for %s: it is for Client.Mutex", what)
	}
}

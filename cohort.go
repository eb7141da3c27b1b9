package holdfast

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A cohort is the calls of one client for one exclusive lock, or for a read lock (cohort_shared.go). One
// call, the asker, has the request at the store; the others wait in a line here. A release passes the
// lock to the first of the line, without an exchange with the store, under the same grant. Each pass has
// its own fencing token, from the block that the store has recorded as given out with the grant.
//
// Passes are bounded in number and time, so other clients wait for no longer than that. Then the lock
// goes back to the store, and the first of the line asks for it there, behind all who wait.
//
// The idea is lock cohorting: Dice, Marathe and Shavit, PPoPP 2012.
//
//	a call comes           it joins the line if calls are in line, if another call asks, or if the
//	                       current lease may be passed on; else it is the asker
//	the asker is granted   its lease is the current one; if it may not be passed on, the first of the
//	                       line asks at once
//	the asker gives up     its place goes to the first of the line, or else is cancelled
//	the asker fails        the calls of the line fail with it: they want the same of the same store
//	a release              passes the lock on, or gives it back, and the first of the line asks
//	the time is over       the first of the line asks, while the current lease goes on
//	a loss, a hand-off     the first of the line asks
//
// So whenever calls are in line, another one asks, or the current lease may be passed on.
//
// All fields are guarded by Client.mu.
type cohort struct {
	key     cohortKey
	asking  bool   // a call asks the store, or is about to
	current *Lease // under the grant; it may have been released, but not yet passed on
	line    line
	next    uint64         // the token of the next pass
	last    uint64         // the last of the block, which is the token of the grant
	began   time.Duration  // when the grant was heard of
	passes  int            // under the present grant; without one, under the grant before
	boot    time.Duration  // began, on Client.boot
	passFor time.Duration  // for how long after began the lock may be passed on
	timer   *time.Timer    // until passFor is over
	holder  *driver.Holder // the last that the asker knows
	named   time.Duration  // as attempt.named
	failure error          // as attempt.failure, of the asker
	heard   time.Duration  // when the store was last known to say that the lock is not free; -1: never
	left    time.Duration  // when a call of the cohort last had the lock
	sticky                 // what Sticky needs: see sticky.go
}

// cohortKey says which calls may pass a lock among themselves: those whose record at the store would
// be the same.
type cohortKey struct {
	name, info string
	readWrite  bool
	mode       driver.Mode
}

// The bounds of passes, unless Config has others.
const (
	defaultPasses  = 512
	defaultPassFor = 10 * time.Millisecond
)

// moreTokens is how many tokens more than the last grant has used the next one asks for. Tokens of
// many stores are microseconds of a clock. An exchange takes longer than that many, so tokens do not
// run ahead of the clock. Sticky asks for more, and its stores bound that.
const moreTokens = 64

// cohortOf returns the cohort in which l may get its lock; nil: l is on its own, as with permits, Fair,
// MinHold or MaxHold. Called with c.mu held.
func (c *Client) cohortOf(l *Lease, o *options) *cohort {
	r := &l.req
	if !r.Wait && o.sticky == 0 || r.Mode == driver.Permits || r.MinHold > 0 || o.maxHold > 0 || o.fair ||
		c.passes == 0 {
		return nil
	}
	key := cohortKey{r.Name, r.Info, r.ReadWrite, r.Mode}
	k := c.cohorts[key]
	if k == nil {
		if n := len(c.idleCohorts); n > 0 {
			k, c.idleCohorts = c.idleCohorts[n-1], c.idleCohorts[:n-1]
		} else {
			k = &cohort{}
		}
		k.key, k.heard, k.left = key, -1, -forever
		c.cohorts[key] = k
		if k.reads() {
			c.readers[r.Name] = append(c.readers[r.Name], k)
		}
		c.startSticky(k, o.sticky)
	}
	return k
}

// maxIdleCohorts is how many unused cohorts a client keeps for other names.
const maxIdleCohorts = 64

// forgetCohort drops k if nobody uses it. Called with c.mu held.
func (c *Client) forgetCohort(k *cohort) {
	switch {
	case k.inUse():
		return
	case k.full:
		c.keepFull(k)
		return
	}
	c.unlistCohort(k)
	c.stopSticky(k)
	if *k = (cohort{timer: k.timer, sticky: sticky{idleTimer: k.idleTimer}}); len(c.idleCohorts) < maxIdleCohorts {
		c.idleCohorts = append(c.idleCohorts, k)
	}
}

func (k *cohort) inUse() bool { return k.asking || k.current != nil || k.line.n > 0 }

// enterCohort makes the call part of its cohort, if it has one. m is the call's place in the line; nil:
// it has none. granted: it has taken the idle grant. Otherwise a call without a place asks the store.
// idle is the lease of an idle grant that the call could not take, and gives back before it asks.
func (call attempt) enterCohort() (m *member, granted bool, idle *Lease) {
	l := call.l
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.req.Mode == driver.Exclusive && call.mayWait {
		c.partReaders(l.req.Name)
	}
	k := c.cohortOf(l, call.o)
	if l.cohort = k; k == nil {
		return nil, false, nil
	}
	if k.isIdle() {
		if l.takeIdle() {
			return nil, true, nil
		}
		c.now() // if the machine has slept, the lease that the call asks for shall know it
		k.asking, l.asks = true, true
		return nil, false, c.endIdle(k)
	}
	if !k.asking && k.line.n == 0 && (k.current == nil || !k.sticks() && !k.goesBack() && !k.mayPass(c.coarseNow())) {
		k.asking, l.asks = true, true
		return nil, false, nil
	}
	if !call.mayWait { // a TryLock asks on its own, and learns who has the lock
		l.cohort = nil
		return nil, false, nil
	}
	m = &member{attempt: call, came: make(chan struct{}, 1)}
	if m.inQueue, m.ahead = true, k.line.n; k.asking {
		m.ahead++
	}
	if w := m.end; w != nil {
		w.Queued, w.Ahead = time.Now(), m.ahead
	}
	k.line.add(m)
	return m, false, nil
}

// first takes the first of the line, to whom the caller gives t. Called with c.mu held.
func (k *cohort) first(t turn) *member {
	m := k.line.head
	if m == nil {
		return nil
	}
	k.line.remove(m)
	m.inQueue, m.l.asks = false, !t.passed && t.err == nil
	m.turn = t
	m.came <- struct{}{}
	return m
}

// askForBlock makes l's request ask for as many tokens as passes may need, and tell operators. A call
// that nobody else of its client competes with needs one.
func (l *Lease) askForBlock() {
	k, c := l.cohort, l.c
	if l.req.Tokens = 1; k == nil || k.reads() {
		return
	}
	c.mu.Lock()
	local, contended := k.line.n, k.line.n > 0 || k.current != nil
	if contended {
		l.req.Tokens = min(k.passes+moreTokens, c.passes+1)
	}
	if k.stick > 0 {
		contended, l.req.CallBack, k.askID, k.wanted = true, true, l.req.ID, false
		if l.req.Tokens = k.passes + moreTokens; k.full {
			l.req.Tokens += k.passes
		}
		l.req.Tokens = min(l.req.Tokens, driver.MaxCallBackTokens)
	}
	l.req.Info = k.key.info
	c.mu.Unlock()
	if contended {
		i := driver.ParseInfo(l.req.Info)
		i.Local, i.Tokens = local, l.req.Tokens
		if info := i.String(); len(info) <= driver.MaxInfo {
			l.req.Info = info
		}
	}
}

// startGrant notes that the store has granted l under token. Called with c.mu held.
func (l *Lease) startGrant(token uint64, now time.Duration) {
	l.grantToken, l.token = token, token-uint64(l.req.Granted(token, l.c.backend.Kinds())-1)
	if k := l.cohort; k != nil {
		l.asks = false
		k.asking, k.current, k.next, k.last, k.began, k.passes = false, l, l.token+1, token, now, 0
		k.holder, k.failure = nil, nil
		if k.reads() { // startLease lets in the line
			k.current = nil
			return
		}
		k.boot = l.c.boot()
		k.passFor = min(l.c.passFor, l.session.ttl/10)
		if k.stick > 0 {
			k.startStick(l)
		}
		switch {
		case k.sticks():
		case k.next <= k.last:
			k.awaitTime(l.c)
		default:
			l.c.nextAsker(k)
		}
	}
}

// awaitTime makes passedTime look when the time of passes is over. Called with c.mu held.
func (k *cohort) awaitTime(c *Client) {
	if k.timer == nil {
		k.timer = time.AfterFunc(k.passFor, func() { c.passedTime(k) })
		return
	}
	k.timer.Reset(k.passFor)
}

// passOn passes the lock to the first of the line. l has been released, and its contexts have been
// cancelled. It returns false if the store has to have the lock back: then the first of the line asks.
func (l *Lease) passOn() bool {
	c, k := l.c, l.cohort
	if k == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.current != l {
		return false
	}
	if k.asking || k.line.n == 0 && !k.sticks() {
		c.leaveCohort(l)
		return false
	}
	switch now := c.coarseNow(); {
	case k.sticks() && k.spent(now): // usedUp leaves the cohort, when the store has the grant back
		k.full = true
		return false
	case k.line.n == 0 && l.mayKeep(now):
		l.keepIdle(now)
		return true
	case k.line.n == 0 || !l.mayPass(now):
		c.leaveCohort(l)
		return false
	}
	l.passTo(k.line.head.l, time.Now())
	k.first(turn{passed: true})
	return true
}

// passTo makes to the current lease, under the grant of l, from now on. Called with c.mu held.
func (l *Lease) passTo(to *Lease, now time.Time) {
	c, k := l.c, l.cohort
	to.session, to.number = l.session, l.number
	to.req.ID, to.req.Tokens, to.req.Info = l.req.ID, l.req.Tokens, l.req.Info
	to.unanswered, to.pushed, to.grantToken, to.token = l.unanswered, l.pushed, l.grantToken, k.next
	to.since, to.latest = now, forever
	to.extend(l.trusted)
	c.watchLease(to)
	k.current = to
	k.next++
	k.passes++
}

// mayPass reports whether l, the current lease, may be passed on. Called with c.mu held.
func (l *Lease) mayPass(now time.Duration) bool {
	c, k := l.c, l.cohort
	return l.mayKeep(now) && (k.sticks() || c.boot()-k.boot < k.passFor) // the machine may have slept
}

// mayKeep reports whether the grant of l, the current lease, may stay with the client after its release.
// It goes back if an operator has asked for that; if a ticket names it, since nobody may resume a later lease;
// and after Extend, since renewals may have proved it only until l was to end. Called with c.mu held.
func (l *Lease) mayKeep(now time.Duration) bool {
	if l.notice != nil || l.ticketed || l.latest != forever || l.req.Mode != driver.Exclusive || l.c.closed ||
		l.session.over() {
		return false
	}
	if l.cohort.sticks() { // the machine may have slept: then the store says whether the lease still exists
		now = max(now, l.c.trueNow(time.Now()))
	}
	return now < l.trusted && l.cohort.mayPass(now)
}

// mayPass reports whether the bounds allow another pass. Called with c.mu held.
func (k *cohort) mayPass(now time.Duration) bool {
	return k.next <= k.last && (k.sticks() || now-k.began < k.passFor)
}

// passedTime notes that the time of passes is over. If the lock is still held, the first of the line
// goes to the store's queue. So calls of other clients that come later are behind it.
func (c *Client) passedTime(k *cohort) {
	now := c.coarseNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case k.current == nil || k.asking || k.full || k.sticks():
	case k.mayPass(now): // the timer was that of the grant before, or the readings of two clocks differ
		k.awaitTime(c)
	default:
		k.last = 0 // for good, whatever the clocks show
		c.nextAsker(k)
	}
}

// heir returns the lease that l's grant has been passed on to, or l. Called with c.mu held.
func (l *Lease) heir() *Lease {
	if k := l.cohort; k != nil {
		if to := k.current; to != nil && to.grantToken == l.grantToken && to.req.ID == l.req.ID {
			return to
		}
	}
	return l
}

// leaveCohort notes that l, the current lease, is over and is not passed on. Called with c.mu held.
func (c *Client) leaveCohort(l *Lease) {
	k := l.cohort
	if k == nil || k.current != l {
		return
	}
	if k.current = nil; l.kept != idleGrant && !k.full { // else it was not held while its release was under way
		k.left = min(c.coarseNow(), l.trusted)
	}
	if !k.asking {
		c.nextAsker(k)
	}
}

// nextAsker lets the first of the line ask the store. Called with c.mu held.
func (c *Client) nextAsker(k *cohort) {
	k.asking = k.first(turn{}) != nil
	c.forgetCohort(k)
}

// stopAsking notes that the asker l has given up. failed: with an error of the store, which the line
// gets, too; nil: the first of the line asks. It does nothing if l is not the asker any more.
func (c *Client) stopAsking(l *Lease, failed error) {
	if !l.asks {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := l.cohort
	l.asks = false
	for failed != nil && k.first(turn{err: failed}) != nil {
	}
	c.nextAsker(k)
}

// setPasses sets the bounds of passes. Errors: ErrInvalid.
func (c *Client) setPasses(cfg *Config) error {
	switch {
	case cfg.Passes >= driver.MaxTokens:
		return fmt.Errorf("%w Passes of %d: allowed are up to %d, 0 for %d, and negative numbers for none", ErrInvalid,
			cfg.Passes, driver.MaxTokens-1, defaultPasses)
	case cfg.PassFor < 0:
		return fmt.Errorf("%w PassFor of %v: allowed are 0, for %v, and more; Passes of -1 turns passes off", ErrInvalid,
			cfg.PassFor, defaultPassFor)
	case cfg.Passes < 0, cfg.History > 0, !c.backend.Kinds().Blocks: // with a history every grant is on record
		return nil
	}
	c.passes, c.passFor = cmp.Or(cfg.Passes, defaultPasses), cmp.Or(cfg.PassFor, defaultPassFor)
	return nil
}

// GrantToken returns the token by which the store knows the grant: Record.Holders has it, and
// Client.Break takes it. It is Token, or somewhat larger if calls of this client may pass the lock
// among themselves under the grant (Config.Passes).
func (l *Lease) GrantToken() uint64 {
	l.mustBeUsable("GrantToken")
	return l.grantToken
}

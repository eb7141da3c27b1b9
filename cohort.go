package holdfast

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A cohort is the calls of one client for one exclusive lock. One of them, the asker, has the request
// at the store; the others wait in a line here. A release passes the lock to the first of the line,
// without an exchange with the store, under the same grant. Each pass has a fencing token of its own,
// from the block of tokens that the store has recorded as given out with the grant.
//
// Passes are bounded in number and time, so that other clients wait for no longer than that. Then the
// lock goes back to the store, and the first of the line asks for it there, behind all who wait.
//
// The idea is lock cohorting: Dice, Marathe and Shavit, PPoPP 2012.
//
//	a call comes         nobody asks or holds: it is the asker; else it joins the line
//	the asker is granted its lease is the current one
//	the asker gives up   its place goes to the first of the line, or else is cancelled
//	the asker fails      the calls of the line fail with it: they want the same of the same store
//	a release            passes the lock on; or the store has it, and the first of the line asks
//	a loss, a hand-off   the first of the line asks
type cohort struct {
	key     cohortKey
	asking  bool   // a call asks the store, or is about to
	current *Lease // under the grant; it may have been released, but not yet passed on
	line    line
	next    uint64        // the token of the next pass
	last    uint64        // the last of the block, which is the token of the grant
	began   time.Duration // when the grant was heard of
	passes  int           // under the present grant, or if there is none under the one before
	boot    time.Duration // the same on Client.boot
	passFor time.Duration
	timer   *time.Timer    // until passFor is over
	holder  *driver.Holder // the last that the asker knows
	named   time.Duration  // as attempt.named
}

// cohortKey says which calls may pass a lock among themselves: those whose record at the store would
// be the same.
type cohortKey struct {
	name, info string
	readWrite  bool
}

// member is a call in the line of a cohort.
type member struct {
	attempt
	came       chan struct{} // gets a value when turn is there
	turn       turn
	inLine     bool
	prev, next *member
}

// line is the calls that wait for each other, in order of arrival.
type line struct {
	head, tail *member
	n          int
}

func (q *line) add(m *member) {
	if m.inLine, m.prev = true, q.tail; q.tail == nil {
		q.head = m
	} else {
		q.tail.next = m
	}
	q.tail = m
	q.n++
}

func (q *line) remove(m *member) {
	if m.prev == nil {
		q.head = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.tail = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.inLine, m.prev, m.next = false, nil, nil
	q.n--
}

// turn is why a member has left the line. The zero turn: it is the asker now.
type turn struct {
	passed bool   // its lease has begun
	place  *place // it is the asker, and takes over a place in the queue
	err    error  // the asker has failed with this
}

// place is a place in the store's queue that another call takes over.
type place struct {
	l     *Lease // whose request has the place
	proof time.Duration
	reply driver.Reply
	at    time.Duration // when the call before gave up
}

// The bounds of passes, unless Config has others.
const (
	defaultPasses  = 256
	defaultPassFor = 10 * time.Millisecond
)

// moreTokens is how many tokens more than the last grant has used the next one asks for. Tokens of
// many stores are microseconds of a clock. An exchange takes longer than that many, so tokens do not
// run ahead of the clock.
const moreTokens = 64

// cohortOf returns the cohort in which l may get its lock; nil: l is on its own. A lock that the
// store must keep in a way of its own is: with a minimum hold, or a maximum hold. Called with c.mu held.
func (c *Client) cohortOf(l *Lease, o *options) *cohort {
	r := &l.req
	if !r.Wait || r.Mode != driver.Exclusive || r.MinHold > 0 || o.maxHold > 0 || o.fair || c.passes == 0 {
		return nil
	}
	key := cohortKey{r.Name, r.Info, r.ReadWrite}
	k := c.cohorts[key]
	if k == nil {
		if n := len(c.idleCohorts); n > 0 {
			k, c.idleCohorts = c.idleCohorts[n-1], c.idleCohorts[:n-1]
		} else {
			k = &cohort{}
		}
		k.key, k.passes = key, 0
		c.cohorts[key] = k
	}
	return k
}

// maxIdleCohorts is how many unused cohorts a client keeps for other names.
const maxIdleCohorts = 64

// forgetCohort drops k if nobody uses it. Called with c.mu held.
func (c *Client) forgetCohort(k *cohort) {
	if k.asking || k.current != nil || k.line.n > 0 {
		return
	}
	delete(c.cohorts, k.key)
	if k.key = (cohortKey{}); len(c.idleCohorts) < maxIdleCohorts {
		c.idleCohorts = append(c.idleCohorts, k)
	}
}

// enterCohort makes the call part of its cohort, if it has one. It returns nil if the call asks the
// store itself, or else its place in the line.
func (call attempt) enterCohort() *member {
	l := call.l
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.cohortOf(l, call.o)
	if l.cohort = k; k == nil {
		return nil
	}
	if !k.asking && k.line.n == 0 && (k.current == nil || !k.mayPass(c.coarseNow())) {
		k.asking, l.asks = true, true
		return nil
	}
	m := &member{attempt: call, came: make(chan struct{}, 1)}
	m.inQueue, m.ahead = true, k.line.n+1
	k.line.add(m)
	return m
}

// first takes the first of the line, to whom the caller gives t. Called with c.mu held.
func (k *cohort) first(t turn) *member {
	m := k.line.head
	if m == nil {
		return nil
	}
	k.line.remove(m)
	m.l.asks = !t.passed && t.err == nil
	m.turn = t
	m.came <- struct{}{}
	return m
}

// askForBlock makes l's request ask for as many tokens as passes may need, and tell operators. A call
// that nobody else of its client competes with needs one.
func (l *Lease) askForBlock() {
	k, c := l.cohort, l.c
	if l.req.Tokens = 1; k == nil {
		return
	}
	c.mu.Lock()
	local, contended := k.line.n, k.line.n > 0 || k.current != nil
	if contended {
		l.req.Tokens = min(k.passes+moreTokens, c.passes+1)
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
	l.grantToken, l.token = token, token-uint64(l.req.Block()-1)
	if k := l.cohort; k != nil {
		l.asks = false
		k.asking, k.current, k.next, k.last, k.began, k.passes, k.holder = false, l, l.token+1, token, now, 0, nil
		k.boot = l.c.boot()
		if k.passFor = min(l.c.passFor, l.session.ttl/10); k.next <= k.last {
			k.awaitTime(l.c)
		} else {
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
	if k.line.n == 0 || k.asking || l.notice != nil || l.req.Mode != driver.Exclusive || c.closed || l.session.over() {
		c.leaveCohort(l)
		return false
	}
	if now := c.coarseNow(); now >= l.trusted || !k.mayPass(now) || c.boot()-k.boot >= k.passFor {
		// On boot the time counts that the machine slept, too.
		c.leaveCohort(l)
		return false
	}
	to := k.line.head.l
	to.session, to.number = l.session, l.number
	to.req.ID, to.req.Tokens, to.req.Info = l.req.ID, l.req.Tokens, l.req.Info
	to.unanswered, to.pushed, to.grantToken, to.token = l.unanswered, l.pushed, l.grantToken, k.next
	to.since, to.latest = time.Now(), forever
	to.extend(l.trusted)
	c.watchLease(to)
	k.current = to
	k.next++
	k.passes++
	k.first(turn{passed: true})
	return true
}

// mayPass reports whether the bounds allow another pass. Called with c.mu held.
func (k *cohort) mayPass(now time.Duration) bool {
	return k.next <= k.last && now-k.began < k.passFor
}

// passedTime notes that the time of passes is over. If the lock is still held, the first of the line goes to the store's
// queue: calls of other clients that come from now on shall not be before it.
func (c *Client) passedTime(k *cohort) {
	now := c.coarseNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.current != nil && !k.asking && !k.mayPass(now) {
		c.nextAsker(k)
	}
}

// heir returns the lease that l's grant has been passed on to, or l. Called with c.mu held.
func (l *Lease) heir() *Lease {
	if k := l.cohort; k != nil && k.current != nil && k.current.grantToken == l.grantToken && k.current.req.ID == l.req.ID {
		return k.current
	}
	return l
}

// leaveCohort notes that l, the current lease, is over and is not passed on. Called with c.mu held.
func (c *Client) leaveCohort(l *Lease) {
	k := l.cohort
	if k == nil || k.current != l {
		return
	}
	k.current = nil
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

// bequeath gives a's place in the store's queue to the first of the line, which is the asker then. It
// returns false if there is none.
func (a *attempt) bequeath(reply *driver.Reply) bool {
	l, c := a.l, a.l.c
	if l.cohort == nil || reply.Wake == nil {
		return false
	}
	now := c.coarseNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || l.session.over() ||
		l.cohort.first(turn{place: &place{l, a.wait.proof, *reply, now}}) == nil {
		return false
	}
	l.asks = false
	return true
}

// take makes p's request that of l.
func (p *place) take(l *Lease) (sent time.Duration, reply driver.Reply) {
	l.session, l.number, l.req = p.l.session, p.l.number, p.l.req
	l.unanswered = p.l.unanswered
	if reply = p.reply; reply.Retry > 0 {
		reply.Retry = max(reply.Retry-(l.c.coarseNow()-p.at), time.Microsecond)
	}
	return p.proof, reply
}

// waitInLine waits for m's turn. Without a turn, it returns why m has left the line, and the holder
// that the cohort knows.
func (m *member) waitInLine() (*Holder, error) {
	l, a := m.l, &m.attempt
	c := l.c
	c.startAttempt(a)
	defer c.endAttempt(a)
	if w := a.end; w != nil {
		w.Queued, w.Ahead = time.Now(), a.ahead
	}
	select {
	case <-m.came:
		return nil, m.turn.err
	case <-a.limited.Done():
	case <-c.openCtx.Done():
	}
	c.mu.Lock()
	if !m.inLine { // its turn came at the same time
		c.mu.Unlock()
		<-m.came
		return nil, m.turn.err
	}
	l.cohort.line.remove(m)
	a.holder, a.named = l.cohort.inTheWay(c)
	c.mu.Unlock()
	if c.openCtx.Err() != nil {
		return nil, ErrClosed
	}
	return a.lastHolder(), a.timedOut()
}

// inTheWay returns the holder that k knows, and when it was that. Called with c.mu held.
func (k *cohort) inTheWay(c *Client) (*driver.Holder, time.Duration) {
	l := k.current
	if l == nil {
		return k.holder, k.named
	}
	now := c.coarseNow()
	return &driver.Holder{ID: l.req.ID, Mode: l.req.Mode, N: 1, Token: l.grantToken, Age: time.Since(l.since),
		Left: max(l.trusted-now, 0), Info: l.req.Info}, now
}

// setPasses sets the bounds of passes.
func (c *Client) setPasses(cfg *Config) {
	c.passes, c.passFor = cfg.Passes, cfg.PassFor
	if c.passes == 0 {
		c.passes = defaultPasses
	}
	if c.passFor == 0 {
		c.passFor = defaultPassFor
	}
	// With a history every grant is on record; and some stores have no blocks of tokens.
	if c.passes < 0 || c.passFor < 0 || cfg.History > 0 || !c.backend.Kinds().Blocks {
		c.passes = 0
	}
	c.passes = min(c.passes, driver.MaxTokens-1)
}

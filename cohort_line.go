package holdfast

import (
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

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

// countLine notes for each call of the line how many calls are before it. Called with c.mu held.
func (k *cohort) countLine() {
	n := 0
	if k.asking {
		n = 1
	}
	for m := k.line.head; m != nil; m = m.next {
		m.ahead = n
		n++
	}
}

// turn is why a member has left the line. The zero turn: it is the asker now.
type turn struct {
	passed bool   // its lease has begun
	place  *place // it is the asker, and takes over a place in the queue
	err    error  // the asker has failed with this
}

// place is a place in the store's queue that another call takes over.
type place struct {
	l      *Lease // whose request has the place
	proof  time.Duration
	reply  driver.Reply
	at     time.Duration // when the call before gave up
	holder *driver.Holder
	named  time.Duration // as attempt.named
}

// bequeath gives a's place in the store's queue to the first of the line, which is the asker then. It
// returns false if there is none. reply is the last answer about it, to the exchange sent at sent.
func (a *attempt) bequeath(sent time.Duration, reply driver.Reply) bool {
	l, c := a.l, a.l.c
	if l.cohort == nil || reply.Wake == nil {
		return false
	}
	p := &place{l: l, at: c.coarseNow(), holder: a.holder, named: a.named}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.proof = max(a.wait.proof, sent-reply.Stale)
	if p.reply, p.reply.Holder, p.reply.Stale = reply, nil, 0; a.inQueue {
		p.reply.Ahead = a.ahead
	}
	if c.closed || l.session.over() || l.cohort.first(turn{place: p}) == nil {
		return false
	}
	delete(c.waits, a.wait) // no renewal has a place twice
	l.asks = false
	return true
}

// take makes p's request that of a.
func (p *place) take(a *attempt) (sent time.Duration, reply driver.Reply) {
	l := a.l
	l.session, l.number, l.req = p.l.session, p.l.number, p.l.req
	l.unanswered = p.l.unanswered
	a.holder, a.named = p.holder, p.named
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
	k := l.cohort
	k.line.remove(m)
	heard := k.tell(a)
	c.mu.Unlock()
	if c.openCtx.Err() != nil {
		return nil, ErrClosed
	}
	return a.lastHolder(), a.timedOutInLine(heard)
}

// gaveUp returns why m does not ask, although its turn has come: its time is over.
func (m *member) gaveUp() (*Holder, error) {
	c, a := m.l.c, &m.attempt
	c.mu.Lock()
	heard := m.l.cohort.tell(a)
	c.mu.Unlock()
	return a.lastHolder(), a.timedOutInLine(heard)
}

// tellLine notes what the asker a knows, for the calls of the line.
func (a *attempt) tellLine() {
	if !a.l.asks {
		return
	}
	c, k := a.l.c, a.l.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	k.holder, k.named, k.failure = a.holder, a.named, a.failure
}

// tell lets a, which is leaving the line, know what the cohort knows. It returns when the lock was last
// known not to be free; -1: never. Called with c.mu held.
func (k *cohort) tell(a *attempt) (heard time.Duration) {
	a.holder, a.named, a.failure = k.holder, k.named, k.failure
	now, l := a.l.c.coarseNow(), k.current
	switch {
	case k.leaves() || k.full && l != nil && l.ended != nil: // nobody has it; the store has not answered that yet
		return -1
	case l == nil && now-k.left <= a.l.c.silentAfter():
		return now
	case l == nil || now >= l.trusted:
		return k.heard
	}
	a.holder, a.named = &driver.Holder{ID: l.req.ID, Mode: l.req.Mode, N: 1, Token: l.grantToken,
		Age: time.Since(l.since), Left: l.trusted - now, Info: l.req.Info}, now
	return now
}

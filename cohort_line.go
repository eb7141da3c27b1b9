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

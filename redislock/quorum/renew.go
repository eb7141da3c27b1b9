package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// hold is one of the holds of a Renew.
type hold struct {
	driver.Hold
	r     *request // nil: this session does not know it
	alive int      // of a hold without a request: servers that have it
	none  int      // servers that have no record of the name at all
	open  int      // and that have not answered
}

// Renew is driver.Session.Renew. Every server is asked for everything in one exchange; it returns when
// what a majority says of each hold is known.
func (s *session) Renew(ctx context.Context, asked []driver.Hold) ([]driver.Change, error) {
	if s.isClosed() {
		return nil, driver.ErrClosed
	}
	s.settleDebts()
	if len(asked) == 0 {
		return nil, nil
	}
	stamp, began := s.stamp.Add(1), s.clock.now()
	holds := make([]hold, len(asked))
	for i, h := range asked {
		holds[i] = hold{Hold: h, r: s.find(h.ID), open: len(s.posts)}
		r := holds[i].r
		if r == nil {
			continue
		}
		r.mu.Lock()
		if h.Token != 0 && h.Token != r.token {
			holds[i].r = nil
		} else if h.Token == 0 {
			r.since, r.sinceAt = stamp, began // the caller may count a lease from this exchange soon
		}
		r.mu.Unlock()
	}
	type answer struct {
		p       *post
		of      []int // holds
		changes []driver.Change
		err     error
	}
	answers := make(chan answer, len(s.posts))
	for _, p := range s.posts {
		of, own := s.at1(p, holds)
		if len(own) == 0 {
			answers <- answer{p: p}
			continue
		}
		var changes []driver.Change
		s.at(p, func(ctx context.Context, m member) (err error) {
			changes, err = m.Renew(ctx, own)
			return err
		}, func(err error) { answers <- answer{p, of, changes, err} })
	}
	var errs []error
	var late <-chan time.Time
	for heard, open := 0, len(s.posts); open > 0; {
		var a answer
		select {
		case a = <-answers:
			open--
		case <-late:
			if !undecided(holds, stamp, s.b.need()) {
				return s.changes(ctx, holds, stamp, began, errs)
			}
			late = nil
			continue
		case <-ctx.Done():
			return s.changes(ctx, holds, stamp, began, append(errs, fmt.Errorf("%w: the others have not answered", driver.ErrUncertain)))
		}
		s.learn(a.p, holds, a.of, a.changes, a.err, stamp)
		if a.err != nil {
			errs = append(errs, a.err)
		} else if heard++; heard == s.b.need() {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			late = timer.C
		}
	}
	return s.changes(ctx, holds, stamp, began, errs)
}

// undecided reports whether more answers may say more of some hold.
func undecided(holds []hold, stamp int64, need int) bool {
	for i := range holds {
		h := &holds[i]
		alive := h.alive
		if h.r != nil {
			h.r.mu.Lock()
			if alive = h.r.count(stamp, granted, waiting); h.Token != 0 {
				alive = h.r.count(stamp, granted)
			}
			h.r.mu.Unlock()
		}
		if alive < need && (h.r != nil || h.alive+h.open >= need) {
			return true
		}
	}
	return false
}

// at1 returns which of holds server p has something of, as far as is known, and what.
func (s *session) at1(p *post, holds []hold) (of []int, own []driver.Hold) {
	for i := range holds {
		h := holds[i].Hold
		if r := holds[i].r; r != nil {
			r.mu.Lock()
			seat := &r.seats[p.index]
			known := seat.state != nothing || seat.sent > seat.heard
			if h.Token != 0 && seat.state == granted {
				h.Token = seat.token
			} else {
				h.Token = 0
			}
			r.mu.Unlock()
			if !known {
				continue
			}
		}
		of, own = append(of, i), append(own, h)
	}
	return of, own
}

// learn takes in what server p said.
func (s *session) learn(p *post, holds []hold, of []int, changes []driver.Change, err error, stamp int64) {
	news := make(map[int]driver.Change, len(changes))
	for _, c := range changes {
		news[c.Index] = c
	}
	for k, i := range of {
		h := &holds[i]
		c := news[k]
		if err != nil {
			c.State = driver.Unknown
		}
		if c.Missing {
			h.none++
		}
		if h.r == nil {
			if c.State != driver.Unknown {
				h.open--
			}
			switch c.State {
			case 0, driver.Granted, driver.Waiting:
				h.alive++
			}
			continue
		}
		r := h.r
		r.mu.Lock()
		seat := &r.seats[p.index]
		switch c.State {
		case driver.Gone:
			if seat.state == granted && seat.heard <= stamp {
				seat.ended = stamp
			}
			r.gone(p.index, stamp)
		case driver.Granted:
			s.grantedAt(r, p, stamp, c.Token)
		case driver.Waiting:
			if seat.state == granted && seat.heard <= stamp {
				// What was pushed has overtaken this answer; or it is of an earlier life of the place, which has run out since,
				// and this answer is about the place that another exchange has taken meanwhile. The server knows.
				s.background(func() { s.askOne(r, p, s.stamp.Add(1), s.clock.propose()) })
				break
			}
			seat = r.hear(p.index, stamp)
			if seat != nil {
				if seat.state == nothing || seat.state == leaving {
					seat.state, seat.token = waiting, 0
				}
				seat.reply.Retry, seat.reply.Ahead = c.Retry, c.Ahead
				if seat.wake == nil && !r.over { // the answer that it is in line was lost, and with it the way to be told
					s.background(func() { s.rejoin(r, p, stamp) })
				}
			}
		case 0:
			if seat.state == granted {
				r.hear(p.index, stamp)
			}
		default:
			r.fails(p.index, stamp, err)
		}
		r.mu.Unlock()
	}
}

// changes says what has become of each hold, and completes those that some servers lack.
func (s *session) changes(ctx context.Context, holds []hold, stamp int64, began time.Duration, errs []error) ([]driver.Change, error) {
	var all []driver.Change
	proven := 0
	for i := range holds {
		h := &holds[i]
		c := driver.Change{Index: i}
		switch {
		case h.r != nil:
			s.handedOver(ctx, h, stamp)
			s.state(h, stamp, began, &c)
		case h.alive >= s.b.need():
		case h.alive+h.open < s.b.need():
			c.State = driver.Gone
		default:
			c.State = driver.Unknown
		}
		c.Missing = c.State == driver.Gone && h.none > len(s.posts)-s.b.need()
		if c.State != driver.Unknown {
			proven++
		}
		if c.State != 0 {
			all = append(all, c)
		}
	}
	if proven == 0 {
		err := fmt.Errorf("%w: no majority has answered", driver.ErrUncertain)
		if len(errs) > 0 {
			err = s.b.verdict(errs)
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
		return nil, err
	}
	return all, nil
}

// handedOver brings a place to one token that a majority has granted under different ones.
func (s *session) handedOver(ctx context.Context, h *hold, stamp int64) {
	r := h.r
	r.mu.Lock()
	differ := h.Token == 0 && r.token == 0 && !r.over && !r.raising && r.common() != 0 && r.agreed(stamp) == 0
	r.raising = r.raising || differ
	since := r.since
	r.mu.Unlock()
	if !differ {
		return
	}
	_ = s.agree(ctx, r, since) // if it failed, the seats show it
	r.mu.Lock()
	r.raising = false
	r.mu.Unlock()
}

// state says what has become of h.
func (s *session) state(h *hold, stamp int64, began time.Duration, c *driver.Change) {
	r := h.r
	r.mu.Lock()
	defer r.mu.Unlock()
	got, stands := r.count(stamp, granted), r.count(stamp, granted, waiting)
	open := 0 // of what they would say is not known
	for i := range r.seats {
		if seat := &r.seats[i]; seat.heard < stamp && (seat.state != nothing || seat.sent > seat.heard) {
			open++
		}
	}
	switch {
	case r.over:
		c.State = driver.Gone
	case h.Token != 0 && got >= r.need:
		r.proved = began
		for i := range r.seats {
			r.seats[i].ended = 0
		}
		s.complete(r)
	case h.Token != 0 && got+open < r.need:
		c.State = driver.Gone
		s.background(func() { s.giveUp(r) })
	case h.Token != 0:
		c.State = driver.Unknown
		// Else it may have run out, or have been broken, and must not be revived.
		if s.clock.now()-r.proved < s.ttl*3/4 && !r.ended() {
			s.complete(r)
		}
	case r.token != 0 && r.agreed(stamp) == r.token, r.token == 0 && r.agreed(stamp) != 0:
		r.token, r.proved = r.agreed(stamp), began
		drain(r.wake)
		c.State, c.Token = driver.Granted, r.token
	case r.token != 0: // pushed before, and not proven now
		c.State = driver.Unknown
	case stands >= r.need:
		reply := r.notYet()
		c.State, c.Retry, c.Ahead = driver.Waiting, reply.Retry, reply.Ahead
		s.settle(r)
		s.complete(r)
	case stands+open < r.need:
		c.State = driver.Gone
	default:
		c.State = driver.Unknown
	}
}

// giveUp cancels what is left of a grant that a majority has ended.
func (s *session) giveUp(r *request) {
	s.drop(r)
	for _, p := range s.posts {
		s.cancelOne(p, r.driver.Name, r.driver.ID, func(error) {})
	}
}

// completeAfter is when a grant that only a majority was asked for is extended to the other servers:
// most locks have been released by then.
const completeAfter = 50 * time.Millisecond

// completeSoon extends a grant to the other servers if it lasts.
func (s *session) completeSoon(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial = append(s.partial, r)
	if len(s.partial) > 1 || s.closed {
		return
	}
	time.AfterFunc(completeAfter, func() {
		s.mu.Lock()
		partial := s.partial
		s.partial = nil
		s.mu.Unlock()
		for _, r := range partial {
			r.mu.Lock()
			if !r.over && r.token != 0 && s.clock.now()-r.proved < s.ttl/2 && !r.ended() {
				s.complete(r)
			}
			r.mu.Unlock()
		}
	})
}

// complete asks the servers that know nothing of r again: they have restarted, or did not answer. Of
// a grant it asks those that have it in line only, too, to be preferred there, and those that have not heard that it was
// downgraded. Called with r.mu held.
func (s *session) complete(r *request) {
	for i, p := range s.posts {
		if seat := &r.seats[i]; seat.state == granted && seat.writer && r.driver.Mode == driver.Shared && p.slow.Load() == 0 && p.at() != nil {
			own := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: seat.token}
			s.background(func() {
				s.at(p, func(ctx context.Context, m member) error { return r.downgraded(i, m.Downgrade(ctx, own)) }, func(error) {})
			})
		}
		if seat := &r.seats[i]; seat.state == nothing && p.slow.Load() == 0 && p.at() != nil {
			stamp, propose := s.stamp.Add(1), max(r.token, s.clock.propose())
			s.background(func() { s.askOne(r, p, stamp, propose) })
		}
	}
	if r.token != 0 {
		s.claimAll(r, 0)
	}
}

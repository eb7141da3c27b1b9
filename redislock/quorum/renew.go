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
	term  term
	r     *request // nil: this session does not know it
	alive int      // of a hold without a request: servers that have it
	none  int      // servers without any record of the name
	open  int      // servers that have not answered
}

// Renew asks every server about all holds in one exchange. It returns when a majority has decided
// each hold.
func (s *session) Renew(ctx context.Context, asked []driver.Hold) ([]driver.Change, error) {
	if s.isClosed() {
		return nil, driver.ErrClosed
	}
	if len(asked) == 0 {
		return nil, nil
	}
	stamp := s.stamp.Add(1)
	holds := make([]hold, len(asked))
	for i, h := range asked {
		t := s.term(stamp, h.Lease)
		holds[i] = hold{Hold: h, term: t, r: s.find(h.ID), open: len(s.endpoints)}
		holds[i].Lease = s.kept(t)
		r := holds[i].r
		if r == nil {
			continue
		}
		r.mu.Lock()
		if h.Token != 0 && h.Token != r.token {
			holds[i].r = nil
		} else if h.Token == 0 && stamp > r.since.stamp {
			r.since = t // the caller may soon count a lease from this exchange
		}
		r.mu.Unlock()
	}
	type answer struct {
		p       *endpoint
		of      []part
		changes []driver.Change
		err     error
	}
	answers := make(chan answer, len(s.endpoints))
	for _, p := range s.endpoints {
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
	for answered, open := 0, len(s.endpoints); open > 0; {
		var a answer
		select {
		case a = <-answers:
			open--
		case <-late:
			if !s.undecided(holds) {
				return s.changes(ctx, holds, errs)
			}
			late = nil
			continue
		case <-ctx.Done():
			return s.changes(ctx, holds, append(errs,
				fmt.Errorf("%w: the other servers have not answered", driver.ErrUncertain)))
		}
		s.learn(a.p, holds, a.of, a.changes, a.err)
		if a.err != nil {
			errs = append(errs, a.err)
		} else if answered++; answered == s.b.need() {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			late = timer.C
		}
	}
	return s.changes(ctx, holds, errs)
}

// undecided reports whether more answers may change the result of some hold.
func (s *session) undecided(holds []hold) bool {
	need, now := s.b.need(), s.clock.now()
	for i := range holds {
		h := &holds[i]
		alive := h.alive
		if h.r != nil {
			h.r.mu.Lock()
			if alive = h.r.count(h.term.stamp, granted, waiting); h.Token != 0 {
				_, alive, _ = h.r.standing(h.term, now)
			}
			h.r.mu.Unlock()
		}
		if alive < need && (h.r != nil || h.alive+h.open >= need) {
			return true
		}
	}
	return false
}

// part is what a server is asked about a hold.
type part struct {
	hold  int // its index
	term  term
	place bool // of a grant: the server is not known to have granted it, and is asked for its place
}

// at1 returns the holds that server p has, as far as is known, and their state there.
func (s *session) at1(p *endpoint, holds []hold) (of []part, own []driver.Hold) {
	for i := range holds {
		h, t, place := holds[i].Hold, holds[i].term, false
		if r := holds[i].r; r != nil {
			r.mu.Lock()
			vote := &r.votes[p.index]
			known := vote.state != nothing || vote.sent > vote.answered
			switch {
			case h.Token != 0 && vote.state == granted:
				h.Token = vote.token
			case h.Token != 0: // a place of the grant, which may be renewed at no majority
				t, place = s.rest(r.proof, t.stamp), true
				h.Token, h.Lease = 0, s.kept(t)
			}
			r.mu.Unlock()
			if !known {
				continue
			}
		}
		of, own = append(of, part{i, t, place}), append(own, h)
	}
	return of, own
}

// learn applies the answer of server p.
func (s *session) learn(p *endpoint, holds []hold, of []part, changes []driver.Change, err error) {
	byIndex := make(map[int]driver.Change, len(changes))
	for _, c := range changes {
		byIndex[c.Index] = c
	}
	for k, asked := range of {
		h, t := &holds[asked.hold], asked.term
		c := byIndex[k]
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
		r, stamp := h.r, t.stamp
		r.mu.Lock()
		vote := &r.votes[p.index]
		switch c.State {
		case driver.Gone:
			if asked.place && vote.state == granted {
				break // the server may have granted it after that answer: the next renewal asks for the grant
			}
			if vote.state == granted && vote.answered <= stamp {
				vote.ended, vote.heard, vote.missing = true, s.clock.now(), c.Missing
			}
			r.gone(p.index, stamp)
		case driver.Granted:
			s.grantedAt(r, p, t, c.Token)
		case driver.Waiting:
			if vote.state == granted && vote.answered <= stamp {
				// Either a push has overtaken this answer. Or the push was for an earlier place,
				// which has expired since, and this answer is about a place that another exchange
				// took. The server knows which.
				s.background(func() { s.askOne(r, p, s.stamp.Add(1), s.clock.propose()) })
				break
			}
			vote = r.accept(p.index, stamp)
			if vote != nil {
				if vote.state == nothing || vote.state == yielding { // the push will not come by an earlier channel
					vote.state, vote.token, vote.wake = waiting, 0, nil
				}
				vote.reply.Retry, vote.reply.Ahead, vote.until = c.Retry, c.Ahead, t.end()
				if vote.wake == nil && !r.over { // the answer with the place was lost, and its wake-up channel with it
					s.background(func() { s.rejoin(r, p, stamp) })
				}
			}
		case 0:
			if vote.state == granted && r.accept(p.index, stamp) != nil {
				vote.until = max(vote.until, t.end())
			}
		default:
			r.fails(p.index, stamp, err)
		}
		r.mu.Unlock()
	}
}

// changes returns the changes of all holds, and extends those that some servers lack.
func (s *session) changes(ctx context.Context, holds []hold, errs []error) ([]driver.Change, error) {
	var all []driver.Change
	proven := 0
	for i := range holds {
		h := &holds[i]
		c := driver.Change{Index: i}
		switch {
		case h.r != nil:
			s.handedOver(ctx, h)
			s.state(h, &c)
		case h.alive >= s.b.need():
		case h.alive+h.open < s.b.need():
			c.State = driver.Gone
		default:
			c.State = driver.Unknown
		}
		c.Missing = c.State == driver.Gone && h.none > len(s.endpoints)-s.b.need()
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

// handedOver raises a place that a majority has granted under different tokens to one token.
func (s *session) handedOver(ctx context.Context, h *hold) {
	r := h.r
	r.mu.Lock()
	differ := h.Token == 0 && r.token == 0 && !r.over && !r.raising && r.common() != 0 && r.agreed(h.term) == 0
	r.raising = r.raising || differ
	r.mu.Unlock()
	if !differ {
		return
	}
	_ = s.agree(ctx, r, h.term) // a failure shows in the votes
	r.mu.Lock()
	r.raising = false
	r.mu.Unlock()
}

// state sets c to the state of h.
func (s *session) state(h *hold, c *driver.Change) {
	r := h.r
	r.mu.Lock()
	defer r.mu.Unlock()
	stands := r.count(h.term.stamp, granted, waiting)
	have, prove, open := r.standing(h.term, s.clock.now())
	token := r.agreed(h.term)
	switch {
	case r.over:
		c.State = driver.Gone
	case h.Token != 0 && prove >= r.need:
		r.renewed(h.term)
		if s.clock.now() < r.proof.end() {
			s.complete(r)
		}
	case h.Token != 0 && have+open < r.need:
		c.State = driver.Gone
		s.background(func() { s.cancelEverywhere(r) })
	case h.Token != 0:
		c.State = driver.Unknown
		// Otherwise it may have expired, or have been broken, and must not be revived.
		if r.fresh(s.clock.now(), 75) && !r.ended() {
			s.complete(r)
		}
	case r.token != 0 && token == r.token, r.token == 0 && token != 0:
		s.holds(r, token, h.term)
		r.wake.Drain()
		c.State, c.Token = driver.Granted, r.token
	case r.token != 0: // pushed before, and not proven now
		c.State = driver.Unknown
	case stands >= r.need:
		if r.token == 0 && r.count(h.term.stamp, waiting) > len(r.votes)-r.need { // no majority had granted it
			for i := range r.votes {
				r.votes[i].ended = false
			}
		}
		reply := r.notYet()
		c.State, c.Retry, c.Ahead = driver.Waiting, reply.Retry, reply.Ahead
		s.evaluate(r)
		s.complete(r)
	case stands+open < r.need:
		c.State = driver.Gone
	default:
		c.State = driver.Unknown
		s.complete(r) // the servers without an answer may never give one
	}
}

// cancelEverywhere cancels what is left of a grant that a majority has ended.
func (s *session) cancelEverywhere(r *request) {
	s.drop(r)
	for _, p := range s.endpoints {
		s.cancelOne(p, r.driver.Name, r.driver.ID, func(error) {})
	}
}

// completeAfter is when a grant of a first majority is extended to the other servers: most locks
// are released before that.
const completeAfter = 50 * time.Millisecond

// completeSoon extends a grant to the other servers if it lasts. The caller may hold r.mu.
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
			if !r.over && r.token != 0 && r.fresh(s.clock.now(), 50) && !r.ended() {
				s.complete(r)
			}
			r.mu.Unlock()
		}
	})
}

// complete asks the servers that do not know r again: they have restarted, or did not answer. For a
// grant it also claims servers that have queued it, and repeats a downgrade, or a minimum hold, that did
// not arrive.
// The caller holds r.mu.
func (s *session) complete(r *request) {
	for i, p := range s.endpoints {
		if vote := &r.votes[i]; vote.state == granted && vote.writer && r.driver.Mode == driver.Shared &&
			p.slow.Load() == 0 && p.at() != nil {
			own := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: vote.token}
			s.background(func() {
				s.at(p, func(ctx context.Context, m member) error { return r.downgraded(i, m.Downgrade(ctx, own)) }, func(error) {})
			})
		}
		if r.token != 0 && r.lacksMinimum(i, s.clock.now()) && p.slow.Load() == 0 && p.at() != nil {
			s.setMinimumAt(r, p, func(error) {})
		}
		vote := &r.votes[i]
		if vote.state != nothing || p.slow.Load() != 0 || p.at() == nil {
			continue
		}
		stamp, propose := s.stamp.Add(1), max(r.token, s.clock.propose())
		s.background(func() { s.askOne(r, p, stamp, propose) })
	}
	if r.token != 0 {
		s.claimAll(r, 0)
	}
}

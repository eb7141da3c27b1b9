package quorum

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
)

// withdraw takes back what p has of r, which may go on and ask p again when that is answered.
func (s *session) withdraw(r *request, p *endpoint, done func(error)) {
	r.mu.Lock()
	vote := &r.votes[p.index]
	if vote.withdrawing && !r.over || r.keeps { // the release takes care of it
		r.mu.Unlock()
		done(nil)
		return
	}
	over, limit := r.over, max(vote.limit, vote.token, s.clock.propose())
	vote.state, vote.token, vote.wake, vote.reply = nothing, 0, nil, driver.Reply{}
	vote.shut, vote.withdrawing, vote.limit = true, true, limit
	stamp := s.stamp.Add(1)
	r.mu.Unlock()
	if over {
		s.cancelOne(p, r.driver.Name, r.driver.ID, done)
		return
	}
	var stays uint64
	s.at(p, func(ctx context.Context, m member) (err error) {
		stays, err = m.Withdraw(ctx, r.driver.Name, r.driver.ID, limit)
		return err
	}, func(err error) {
		r.mu.Lock()
		vote.withdrawing = false
		next := vote.next
		switch {
		case r.over: // its end and this answer may have crossed
			if (undelivered(err) || stays != 0) && !r.keeps {
				s.cancelLater(p, r.driver.Name, r.driver.ID)
			}
		case err == nil && stays == 0:
			vote.shut, vote.uncounted, vote.next = false, false, 0
			if vote.answered = max(vote.answered, stamp); next != 0 {
				next = max(next, vote.answered)
				s.background(func() { s.askOne(r, p, next, s.clock.propose()) })
			}
		case err == nil: // another session has proposed a larger token
			vote.limit = max(vote.limit, stays)
			r.mu.Unlock()
			s.withdraw(r, p, done)
			return
		default:
			if vote.next = 0; next != 0 {
				r.fails(p.index, next, err)
				s.evaluate(r)
			}
		}
		r.mu.Unlock()
		done(err)
	})
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// ask makes one exchange with all servers about r.
func (s *session) ask(ctx context.Context, r *request) (driver.Reply, error) {
	stamp := s.stamp.Add(1)
	t := s.term(stamp, r.driver.Lease)
	r.mu.Lock()
	if r.from != 0 && t.sent >= r.proof.end() {
		r.from = 0 // the lease is over, so this is another grant
		for i := range r.votes {
			r.votes[i].lacksAgain()
		}
	}
	// From now on the caller may count a lease from this exchange.
	r.since, r.token, r.asking = t, 0, true
	r.claims = 0
	r.wake.Drain()
	select {
	case <-r.changed: // of an earlier exchange
	default:
	}
	r.mu.Unlock()
	defer s.stopAsking(r)
	propose := s.clock.propose()
	first, rest := s.split(r)
	for _, p := range first {
		s.askOne(r, p, stamp, propose)
	}
	askRest := func() {
		for _, p := range rest {
			s.askOne(r, p, stamp, propose)
		}
		rest = nil
	}
	var hurry <-chan time.Time // when the rest is asked
	if len(rest) > 0 {
		timer := time.NewTimer(s.patience())
		defer timer.Stop()
		hurry = timer.C
	}
	var late <-chan time.Time
	for {
		r.mu.Lock()
		at := r.tally(stamp)
		token := r.agreed(t)
		if token != 0 {
			s.holds(r, token, t)
			r.mu.Unlock()
			if len(first) < len(s.endpoints) {
				s.completeSoon(r)
			}
			s.noteFree(r.driver.Name, s.clock.now()-t.sent)
			return driver.Reply{Token: token}, nil
		}
		if len(rest) > 0 && at.refused+at.failed > 0 {
			r.mu.Unlock()
			askRest()
			continue
		}
		open := 0 // servers that can be expected to answer soon
		for i, p := range s.endpoints {
			if vote := &r.votes[i]; vote.sent >= stamp && vote.answered < stamp && vote.failed < stamp && p.slow.Load() == 0 {
				open++
			}
		}
		switch {
		case r.over && s.isClosed():
			r.mu.Unlock()
			return driver.Reply{}, driver.ErrClosed
		case r.over:
			r.mu.Unlock()
			return driver.Reply{}, driver.Spent(errCancelled)
		case at.granted >= r.need && open == 0:
			r.raising = true
			r.mu.Unlock()
			err := s.agree(ctx, r, t)
			r.mu.Lock()
			r.raising = false
			r.mu.Unlock()
			switch {
			case err == nil:
				continue
			case driver.IsFinal(err):
				s.giveUp(ctx, r, true)
				return driver.Reply{}, driver.Spent(err)
			case errors.Is(err, driver.ErrUncertain):
				return driver.Reply{}, err
			}
			return driver.Reply{}, fmt.Errorf("%w: %v", driver.ErrUncertain, err) // servers have granted r
		case at.failed > len(s.endpoints)-r.need:
			err := s.b.verdict(r.errs(stamp))
			queued := r.queued()
			r.mu.Unlock()
			if !queued && !errors.Is(err, driver.ErrUncertain) { // no caller will repeat the request
				s.giveUp(ctx, r, true)
				err = driver.Spent(err)
			}
			return driver.Reply{}, err
		case at.granted+at.open < r.need && open == 0 && at.granted+at.refused >= r.need:
			s.noteContended(r.driver.Name, s.clock.now()-t.sent)
			if err := r.finalError(stamp); err != nil {
				r.mu.Unlock()
				s.giveUp(ctx, r, true)
				return driver.Reply{}, err
			}
			reply := r.notYet()
			r.mu.Unlock()
			return reply, nil
		}
		impossible := at.granted+at.open < r.need || at.granted >= r.need
		r.mu.Unlock()
		if late == nil && impossible {
			timer := time.NewTimer(s.leisure())
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-r.changed:
		case <-hurry:
			hurry = nil
			time.AfterFunc(s.leisure(), func() { s.notice(r, stamp) }) // then it is more than busy
			askRest()
		case <-late:
			late = nil
			s.notice(r, stamp)
		case <-ctx.Done():
			s.notice(r, stamp)
			return driver.Reply{}, fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
		}
	}
}

var errCancelled = fmt.Errorf("%w: the request was cancelled during Acquire", driver.ErrUncertain)

// tally counts the answers to one exchange.
type tally struct {
	granted, refused, failed, open int
}

func (r *request) tally(stamp int64) (s tally) {
	for i := range r.votes {
		switch vote := &r.votes[i]; {
		case vote.answered >= stamp && vote.state == granted:
			s.granted++
		case vote.answered >= stamp:
			s.refused++
		case vote.failed >= stamp:
			s.failed++
		default:
			s.open++
		}
	}
	return s
}

// errs returns the errors of one exchange.
func (r *request) errs(stamp int64) (errs []error) {
	for i := range r.votes {
		if s := &r.votes[i]; s.failed >= stamp && s.answered < stamp {
			errs = append(errs, s.err)
		}
	}
	return errs
}

// finalError returns an error of one server that means that no server can grant the request.
func (r *request) finalError(stamp int64) error {
	for _, err := range r.errs(stamp) {
		if driver.IsFinal(err) && !lone(err) {
			return err
		}
	}
	return nil
}

// notice marks the servers that have not answered this exchange. Later exchanges do not wait for
// them until they answer.
func (s *session) notice(r *request, stamp int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range s.endpoints {
		if vote := &r.votes[i]; vote.sent >= stamp && vote.answered < stamp && vote.failed < stamp {
			p.slows(s.clock.now().Microseconds())
		}
	}
}

// settled reports whether no question to the server is under way.
func (s *vote) settled() bool { return s.sent <= max(s.answered, s.failed) }

// askOne asks one server, in the background.
func (s *session) askOne(r *request, p *endpoint, stamp int64, propose uint64) {
	r.mu.Lock()
	if r.over { // its release or cancellation skips servers that were not asked
		r.mu.Unlock()
		return
	}
	vote := &r.votes[p.index]
	vote.sent = max(vote.sent, stamp)
	if vote.shut { // what the server has by then does not count
		vote.next = stamp
		r.mu.Unlock()
		s.withdraw(r, p, func(error) {})
		return
	}
	vote.open++
	req, t := r.driver, s.rest(r.counts(), stamp)
	req.Lease, req.MinHold = s.kept(t), 0
	if r.driver.Wait { // others are told by setMinimumAt: a late question must not keep the name
		req.MinHold = r.minimum(s.clock.now())
	}
	req.Wait = req.Wait || r.token != 0 // a grant of a majority is waited for at the other servers
	// The grant counts only if its token is larger than what a withdrawal may still end.
	for i := range r.votes {
		propose = max(propose, r.votes[i].limit+1)
	}
	r.mu.Unlock()
	var reply driver.Reply
	var place uint64
	s.at(p, func(ctx context.Context, m member) (err error) {
		reply, place, err = m.Ask(ctx, &req, propose)
		return err
	}, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		vote.open--
		switch {
		case r.over && err != nil:
			if !r.keeps || !s.sparesAt(req.ID, p.index) { // otherwise the release is repeated there
				s.missedRelease(p, req.Name, req.ID)
			} else {
				vote.stray = true // perhaps
			}
			return
		case r.over && vote.passing: // it must not be ended before the release is answered
			vote.stray = vote.stray || reply.Token != 0 || reply.Wake != nil
		case r.over && r.keeps && s.sparesAt(req.ID, p.index): // the release is repeated there, and cancels it then
			vote.stray = vote.stray || reply.Token != 0 || reply.Wake != nil
		case r.over: // this answer and the request's end may have crossed
			if reply.Token != 0 && s.clock.now() >= r.kept || reply.Wake != nil {
				s.cancelStray(p, req.Name, req.ID)
			}
		case err != nil:
			if !errors.Is(err, driver.ErrUnavailable) { // the server may have got the question
				vote.uncounted = true
			}
			r.fails(p.index, stamp, err)
		case reply.Token != 0:
			s.grantedAt(r, p, t, reply.Token)
			if r.token != 0 && r.lacksMinimum(p.index, s.clock.now()) {
				s.setMinimumAt(r, p, func(error) {})
			}
		default:
			r.waits(p.index, t, place, reply)
			if r.token != 0 {
				s.claimAt(r, p, 0)
			}
			s.takePush(r, p.index)
		}
		s.evaluate(r)
		if !r.asking {
			s.align(r)
		}
	})
}

// stopAsking lets pushes decide, because no exchange is listening any more.
func (s *session) stopAsking(r *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
	s.evaluate(r)
	s.align(r)
}

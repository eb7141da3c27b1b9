package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// pushed handles a push of a server for the request id.
func (s *session) pushed(p *endpoint, id string) {
	r := s.find(id)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.takePush(r, p.index)
}

// takePush acts on a push of server i, which may have come before the answer that it belongs to. The
// caller holds r.mu.
func (s *session) takePush(r *request, i int) {
	grant, ask := r.pushed(i)
	switch {
	case grant:
		s.evaluate(r)
		if r.token != 0 && r.lacksMinimum(i, s.clock.now()) {
			s.setMinimumAt(r, s.endpoints[i], func(error) {})
		}
	case ask && r.token == 0 && !r.over:
		r.wake.Put(0)
	}
}

// evaluate acts on the current votes. The caller holds r.mu.
func (s *session) evaluate(r *request) {
	switch {
	case r.over:
		return
	case r.asking:
		r.signal()
		return
	case r.token != 0 || !r.driver.Wait || r.raising:
		return
	}
	if token := r.agreed(r.since); token != 0 {
		s.holds(r, token, r.since)
		r.wake.Put(token)
		return
	}
	if r.common() != 0 && r.count(0, granted) == len(r.votes) {
		r.raising = true
		s.background(func() { s.confirm(r) })
		return
	}
	rank := r.rank()
	switch {
	case rank >= 0 && r.timer == nil:
		s.claimIn(r, s.claimPause(r), rank)
	case rank == 0 && r.lacking && r.timer.Stop(): // it has a majority now, so it need not wait for others
		s.claimIn(r, min(s.moment(), r.since.lease/6), rank)
	}
}

// claimIn calls claim after a pause. The caller holds r.mu, and r has no other timer.
func (s *session) claimIn(r *request, pause time.Duration, rank int) {
	r.lacking = rank > 0
	r.timer = time.AfterFunc(pause, func() { s.claim(r) })
}

// background runs f in the background, unless the session is closed.
func (s *session) background(f func()) {
	if s.begin(nil) != nil {
		return
	}
	go func() {
		defer s.bg.Done()
		f()
	}()
}

// confirm raises grants that were handed over to one token, and renews those that were proven
// before the caller's last exchange.
func (s *session) confirm(r *request) {
	r.mu.Lock()
	t := r.since
	r.mu.Unlock()
	_ = s.agree(s.limited(), r, t) // a failure shows in the votes
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raising = false
	s.evaluate(r)
}

// agree gives the grants of r one token, and renews those that do not prove t. It returns when a
// majority has done that, or cannot any more.
func (s *session) agree(ctx context.Context, r *request, t term) error {
	for range len(s.endpoints) { // another grant may come in between, at most once for each server at a time
		stamp := s.stamp.Add(1)
		r.mu.Lock()
		to := r.common()
		type one struct {
			p     *endpoint
			h     driver.Hold
			renew bool
		}
		var behind []one
		for i, p := range s.endpoints {
			if vote := &r.votes[i]; vote.confirmed() && (vote.token < to || vote.token == to && !vote.proves(t)) {
				behind = append(behind, one{p, driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: vote.token},
					!vote.proves(t)})
			}
		}
		r.mu.Unlock()
		done, asked := make(chan error, len(s.endpoints)), len(behind)
		for _, o := range behind {
			renewal := term{stamp: stamp}
			if o.renew {
				renewal = s.rest(t, stamp)
			}
			s.raiseOne(r, o.p, renewal, o.h, to, done)
		}
		if asked == 0 {
			return driver.ErrUnavailable // they have gone meanwhile
		}
		var errs []error
		for n := 0; n < asked; n++ {
			select {
			case err := <-done:
				if err != nil {
					errs = append(errs, err)
				}
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
			}
			r.mu.Lock()
			ok := r.agreed(t) != 0
			r.mu.Unlock()
			if ok {
				return nil
			}
		}
		if len(errs) > 0 {
			return s.b.verdict(errs)
		}
	}
	return driver.ErrUnavailable
}

// raiseOne raises the token of a grant at one server, and renews it if t has a lease.
func (s *session) raiseOne(r *request, p *endpoint, t term, h driver.Hold, to uint64, done chan<- error) {
	var token uint64
	sent, renew, lease := s.clock.now(), t.lease > 0, time.Duration(0)
	if renew {
		lease = driver.LeaseWithin(s.kept(t), s.ttl)
	}
	s.at(p, func(ctx context.Context, m member) (err error) {
		var clock time.Duration
		if token, clock, err = m.Raise(ctx, h, to, lease); err == nil {
			s.clock.saw(p.index, sent, clock)
		}
		return err
	}, func(err error) {
		r.mu.Lock()
		vote := &r.votes[p.index]
		switch {
		case err == nil && renew:
			r.granted(p.index, t, token)
		case err == nil && vote.state == granted && vote.token == h.Token:
			vote.token = token
		case driver.IsOver(err):
			r.gone(p.index, t.stamp)
			vote.uncounted = true
			// It is unknown whether it is queued there: the grant was over, or a push was forged.
			if r.driver.Wait && r.token == 0 && !r.over && !r.asking {
				r.wake.Put(0)
			}
		case err != nil:
			r.fails(p.index, t.stamp, err)
		}
		r.mu.Unlock()
		done <- err
	})
}

// claimAfter is a wait for more votes, before a request with some servers claims others, or one
// with a majority raises its tokens. Later votes are rare.
const claimAfter = time.Millisecond

// moment returns claimAfter, or longer if the servers are far or busy.
func (s *session) moment() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(claimAfter, 2*s.pace), s.ttl/6)
}

// claimPause returns the pause before the next claim. The caller holds r.mu.
func (s *session) claimPause(r *request) time.Duration {
	return min(s.moment()<<min(r.claims, 20), r.since.lease/6)
}

// claim acts when no more votes come by themselves: it asks the holders of the other servers to
// give way, or raises a majority to one token.
func (s *session) claim(r *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rank := r.rank()
	// Places whose caller has not asked for too long expire, and are not taken again.
	if r.over || r.token != 0 || r.asking || rank < 0 || r.raising || s.clock.now() >= r.since.end() {
		r.timer = nil
		return
	}
	r.claims++
	if rank == 0 { // they have given different tokens
		r.timer, r.raising = nil, true
		s.background(func() { s.confirm(r) })
		return
	}
	s.claimIn(r, s.claimPause(r), rank)
	s.claimAll(r, rank)
	if r.claims < askAgain {
		return
	}
	for i, p := range s.endpoints { // the server may have done it, and its answer was lost
		if vote := &r.votes[i]; (vote.state == nothing || vote.state == granted) && vote.failed > vote.answered {
			stamp := s.stamp.Add(1)
			s.background(func() { s.askOne(r, p, stamp, s.clock.propose()) })
		}
	}
}

// askAgain is after how many claims servers without an answer are asked again.
const askAgain = 3

// claimAll claims every server that has queued r. The caller holds r.mu.
func (s *session) claimAll(r *request, rank int) {
	for _, p := range s.endpoints {
		s.claimAt(r, p, rank)
	}
}

// claimAt claims a server if it has queued r. Rank 0 claims only while the lease that a majority proved lasts. The
// caller holds r.mu.
func (s *session) claimAt(r *request, p *endpoint, rank int) {
	vote := &r.votes[p.index]
	if vote.state != waiting || rank == 0 && s.clock.now() >= r.proof.end() {
		return
	}
	stamp, token := vote.answered, uint64(0)
	if rank == 0 {
		token = s.surpassed(r)
	}
	s.at(p, func(ctx context.Context, m member) error {
		return m.Claim(ctx, r.driver.Name, r.driver.ID, rank, token)
	}, func(err error) {
		if errors.Is(err, driver.ErrGone) {
			s.background(func() { s.rejoin(r, p, stamp) })
		}
	})
}

// grantedAt records that p granted r, in the exchange t. The caller holds r.mu.
//
// The grant may be one that was offered to another request without p's knowledge: the offer was
// lost, or may still arrive. So may a withdrawal. Under a larger token both are void, and then the
// grant counts again.
func (s *session) grantedAt(r *request, p *endpoint, t term, token uint64) {
	vote := &r.votes[p.index]
	if token != vote.token { // perhaps another grant, if the server has lost the one before
		vote.lacksAgain()
	}
	r.granted(p.index, t, token)
	// A late answer of a renewal may have made a place of the offered grant. But the place is right if the yield was
	// answered after t began.
	unknown := vote.state == nothing || vote.state == waiting && vote.answered == t.stamp && t.stamp > vote.gave
	offered, withdrawn := token <= vote.yielded && unknown, token > vote.yielded && token <= vote.limit
	if vote.shut || r.over || !offered && !withdrawn {
		return
	}
	h := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: token}
	renewal, limit := s.rest(r.counts(), s.stamp.Add(1)), vote.limit
	s.background(func() {
		done := make(chan error, 1)
		s.raiseOne(r, p, renewal, h, max(token, limit)+1, done)
		<-done
		r.mu.Lock()
		defer r.mu.Unlock()
		s.evaluate(r)
	})
}

// rejoin asks a server again that reports that r is not queued. answered is the exchange in which
// it reported the opposite.
func (s *session) rejoin(r *request, p *endpoint, answered int64) {
	r.mu.Lock()
	vote := &r.votes[p.index]
	again := !r.over && vote.state == waiting && vote.answered == answered && vote.settled() &&
		s.clock.now() < r.counts().end()
	stamp := s.stamp.Add(1)
	if again {
		vote.sent = stamp // before another claim comes
	}
	r.mu.Unlock()
	if again {
		s.askOne(r, p, stamp, s.clock.propose())
	}
}

// claimed handles a claim: the request by asks the request id to give way at p.
func (s *session) claimed(p *endpoint, id string, rank int, by string) {
	r := s.find(id)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch vote := &r.votes[p.index]; {
	case vote.state == waiting && !r.over:
		// According to the server r holds it, but that answer has not arrived.
		answered := vote.answered
		s.background(func() { s.rejoin(r, p, answered) })
		return
	case vote.state == nothing && vote.settled() && r.driver.Wait && !r.over:
		s.askAfterYield(r, p) // the answer to an earlier question was lost, too
		return
	}
	if !r.gives(p.index, rank) {
		return
	}
	t := s.rest(r.counts(), s.stamp.Add(1))
	h := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: r.votes[p.index].token, Lease: s.kept(t)}
	place, _ := r.place()
	var wake <-chan uint64
	s.at(p, func(ctx context.Context, m member) (err error) {
		wake, place, err = m.Yield(ctx, h, by, place, r.driver.Block())
		return err
	}, func(err error) {
		s.background(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			t.stamp = max(t.stamp, r.votes[p.index].answered)
			switch {
			case r.over:
				if wake != nil {
					s.cancelOne(p, h.Name, h.ID, func(error) {})
				}
			case r.votes[p.index].state != yielding: // something newer is known
			case err == nil && wake != nil:
				r.votes[p.index].gave = s.stamp.Load()
				r.waits(p.index, t, place, driver.Reply{Wake: wake})
				s.takePush(r, p.index)
				s.evaluate(r)
			case driver.IsOver(err):
				// The grant is over. Or it was raised: the answer to that was lost, or an older answer came after it and
				// set the token back.
				r.gone(p.index, t.stamp)
				r.votes[p.index].uncounted = true
				s.askAfterYield(r, p)
			default: // it may have been done or not, or still happen
				r.votes[p.index].state, r.votes[p.index].uncounted = nothing, true
				r.fails(p.index, t.stamp, err)
				s.askAfterYield(r, p)
			}
		})
	})
}

// askAfterYield asks p again for a waiting request that has not yielded it, as far as the session knows. r
// may still have the server, no push tells that, and the next claim would find nothing to give. The caller
// holds r.mu.
func (s *session) askAfterYield(r *request, p *endpoint) {
	if r.token == 0 && s.clock.now() < r.since.end() {
		stamp := s.stamp.Add(1)
		r.votes[p.index].sent = stamp // before another claim comes
		s.background(func() { s.askOne(r, p, stamp, s.clock.propose()) })
	}
}

// align gives r the same place in the other queues as in the first. The caller holds r.mu.
func (s *session) align(r *request) {
	place, first := r.place()
	if place == 0 || r.over {
		return
	}
	for i, p := range s.endpoints {
		if vote := &r.votes[i]; i != first && vote.state == waiting && vote.place != place {
			vote.place = place
			s.at(p, func(ctx context.Context, m member) error {
				return m.Move(ctx, r.driver.Name, r.driver.ID, place)
			}, func(error) {}) // only the order depends on it
		}
	}
}

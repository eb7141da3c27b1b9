package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// Release goes to every server at once, also to those that may have granted the request without an
// answer. It returns when a majority has done it. While the lease is still proven, it also returns
// when the servers without an answer are too few to block others. If the name is kept, servers that may
// have the grant by a question without an answer do not count: they are told in the background.
func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	s.releaseBegins(h.ID) // before it is over: from then on, a late answer cancels it
	r := s.holding(h)
	now := s.clock.now()
	proven, left, surpassed := false, max(keep, s.minimumLeft(h.ID)), h.Token
	if r != nil {
		r.mu.Lock()
		proven = keep == 0 && r.fresh(now, 90) && !r.broken()
		left = max(keep, r.minimum(now))
		r.keeps, r.kept = left > 0, now+left // before it is over, too
		if r.keeps {
			surpassed = s.surpassed(r)
		}
		votes := slices.Clone(r.votes)
		r.mu.Unlock()
		if left > 0 {
			s.keepsName(h.ID, left, votes)
		}
		s.drop(r)
	} else if a := s.find(h.ID); a != nil && a.failedToAdopt() {
		s.drop(a)
	}
	// The proposal must exceed the token that most of them have: another session may have proposed
	// a higher one. The next grant probably takes as many tokens as this one. If it takes more, the
	// servers that have given h the same token still agree.
	block := uint64(1)
	if r != nil {
		block = uint64(r.driver.Block())
	}
	propose := max(s.clock.propose(), h.Token+block)
	var others []*endpoint // that have not granted r, but shall keep the name
	if r != nil && r.isKept() {
		r.mu.Lock()
		for i, p := range s.endpoints {
			// Where the grant is over, it keeps nothing more than its record says.
			if vote := &r.votes[i]; vote.state != granted && !vote.broken() {
				vote.state, vote.sent, others = kept, max(vote.sent, 1), append(others, p)
			}
		}
		r.mu.Unlock()
	}
	k := keeping{
		r: r, token: h.Token, propose: propose, surpassed: surpassed, until: now + left,
		end:   now + s.b.quarantine + s.ttl + askLimit, // a server may restart during the release
		pause: backoff.Pause{First: redial, Most: time.Second},
	}
	settled := make(chan struct{})
	var outcome error // when that is closed
	do := func(ctx context.Context, p *endpoint, m member, own driver.Hold) error {
		known := r != nil
		if !known { // it is repeated
			own.Token, known = s.tokenAt(h, p.index)
		}
		// A server that had granted the request before a majority did counts its minimum hold from then. So each
		// is told what is left, and counts that from now on.
		err := s.pass(ctx, &k, m, own, keep)
		if err == nil || known && !undelivered(err) {
			s.keptAt(h.ID, p.index)
		}
		return err
	}
	outcome = s.everywhere(ctx, r, h, true, proven, do, func(p *endpoint, h driver.Hold) {
		s.background(func() {
			<-settled
			own := k
			switch {
			case errors.Is(outcome, driver.ErrTaken), keep > 0 && driver.IsOver(outcome): // it keeps nothing
				s.cancelOne(p, h.Name, h.ID, func(error) {})
			case keep > 0 && outcome == nil: // the grant may have expired there
				s.keepAt(&own, p)
			default: // a minimum hold is on record there, even if the lease is over
				s.passAgain(&own, p, h)
			}
		})
	})
	if outcome == nil || driver.IsOver(outcome) {
		s.releaseEnds(h.ID)
	}
	k.sure = outcome == nil
	s.releasedName(h.ID, r != nil, keep, outcome)
	close(settled)
	for _, p := range others {
		if driver.IsOver(outcome) { // a grant that had ended keeps nothing
			s.keptAt(h.ID, p.index)
			s.cancelOne(p, h.Name, h.ID, func(error) {})
			continue
		}
		own := k
		s.keepAt(&own, p)
	}
	return outcome
}

// holding returns the request that holds h, if this session knows it.
func (s *session) holding(h driver.Hold) *request {
	r := s.find(h.ID)
	if r == nil || r.driver.Name != h.Name {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Token == 0 || r.token != h.Token {
		return nil
	}
	return r
}

// everywhere runs f on the grant h at all servers, under the token that it has at each. From servers
// that have not granted r it takes r back. releases means that f ends the grant; proven, that the lease has not
// expired. missed gets the servers that did not receive f, and the grant there, if the name shall be kept.
func (s *session) everywhere(ctx context.Context, r *request, h driver.Hold, releases, proven bool,
	f func(context.Context, *endpoint, member, driver.Hold) error, missed func(*endpoint, driver.Hold)) error {
	answers := make(chan error, len(s.endpoints))
	asked, taking := 0, 0
	for i, p := range s.endpoints {
		own, has, without, passing := h, true, false, false
		if r != nil {
			r.mu.Lock()
			vote := &r.votes[i]
			if vote.state == granted {
				own.Token = vote.token
			}
			// A server without the grant may report whether another request holds the lock.
			has = vote.state == granted || vote.state == nothing && vote.sent <= vote.answered && !vote.shut &&
				!vote.uncounted && vote.open == 0
			if passing = releases && has; passing {
				vote.passing = true
			}
			without = vote.without()
			never := vote.sent == 0 || vote.state == kept
			r.mu.Unlock()
			if never {
				continue
			}
		}
		if !has {
			done := func(error) {}
			if !without {
				taking++
				done = func(err error) { answers <- withdrawal{err} }
			}
			s.withdraw(r, p, done)
			continue
		}
		asked++
		s.at(p, func(ctx context.Context, m member) error { return f(ctx, p, m, own) }, func(err error) {
			if passing {
				s.passed(r, p, err)
			}
			// A cancellation would end the minimum hold of a name that is kept.
			switch {
			case r == nil || !undelivered(err) || !r.isOver():
			case r.isKept():
				missed(p, own)
			default:
				s.missedRelease(p, h.Name, h.ID)
			}
			answers <- err
		})
	}
	return s.sum(ctx, answers, asked, taking, proven)
}

// passed records the answer of p to the release of r, and cancels what it gave to r meanwhile.
func (s *session) passed(r *request, p *endpoint, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	vote := &r.votes[p.index]
	vote.passing = false
	switch {
	case !vote.stray:
	case !undelivered(err): // a release that is repeated finds nothing there
		s.cancelOne(p, r.driver.Name, r.driver.ID, func(error) {})
	case r.keeps: // see endStray
		return
	default:
		s.cancelStray(p, r.driver.Name, r.driver.ID)
	}
	vote.stray = false
}

// unsure reports whether a request may have been done in spite of err.
func unsure(err error) bool { return errors.Is(err, driver.ErrUncertain) }

func (r *request) isKept() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keeps
}

func (r *request) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// without reports whether the server has nothing of the request: no question may have reached it since.
func (s *vote) without() bool {
	return s.state == nothing && !s.uncounted && !s.shut && s.open == 0 && s.settled()
}

// withdrawal is the answer of a server that was not asked, but from which the request was taken back.
type withdrawal struct{ err error }

func (withdrawal) Error() string { return "withdrawn" }

// sum waits for the answers of a majority to a request that asked servers received. If the grant is
// proven not to have ended before, it is enough that a majority no longer has it, asked or not. From so many
// others, taking, the request is taken back: each may have it until it has answered.
func (s *session) sum(ctx context.Context, answers <-chan error, asked, taking int, proven bool) error {
	done, gone, taken, left := 0, 0, 0, taking
	var errs []error
	var late <-chan time.Time
	need := s.b.need()
	for open := asked; open > 0 || taking > 0 && proven && done > 0 && gone+taken == 0; {
		rid := proven && done > 0 && gone+taken == 0 && open+len(errs)+left <= len(s.endpoints)-need
		switch over := rid || done+open+len(errs) < need; { // more answers may report another holder
		case !over:
			late = nil
		case late == nil:
			timer := time.NewTimer(grace)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case err := <-answers:
			if w := (withdrawal{}); errors.As(err, &w) {
				if taking--; !undelivered(w.err) {
					left--
				}
				continue
			}
			open--
			switch {
			case err == nil:
				done++
			case errors.Is(err, driver.ErrTaken):
				taken++
			case errors.Is(err, driver.ErrGone):
				gone++
			case driver.IsFinal(err) && !lone(err):
				return err
			default:
				errs = append(errs, err)
			}
		case <-late:
			open, taking = 0, 0 // wait no longer
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
		}
		if done >= need {
			return nil
		}
	}
	switch {
	case proven && done > 0 && gone+taken == 0 && asked-done+left <= len(s.endpoints)-need:
		return nil
	case len(errs) >= need && !slices.ContainsFunc(errs, unsure): // a majority has refused
		return s.b.verdict(errs)
	case done > 0 && done+len(errs) >= need: // some have done it, whatever the others answer
		return &failure{driver.ErrUncertain, fmt.Sprintf("%d of %d servers failed", len(errs), len(s.endpoints)), errs}
	case done+len(errs) >= need:
		return s.b.verdict(errs)
	case taken > 0:
		return driver.ErrTaken
	case gone == 0 && len(errs) > 0:
		return s.b.verdict(errs)
	}
	return driver.ErrGone
}

// Cancel cancels the request at every server. It returns when a majority has done it. After a release that
// keeps the name, it spares servers that have not done that yet, and counts them: the session repeats the
// release there.
func (s *session) Cancel(ctx context.Context, name, id string) error {
	if r := s.find(id); r != nil {
		s.drop(r)
	}
	if s.isClosed() {
		return nil // Close has given everything back
	}
	s.releaseEnds(id) // its caller does not repeat it
	spare := s.spares(id)
	answers := make(chan error, len(s.endpoints))
	for i, p := range s.endpoints {
		if spare != nil && spare[i] {
			answers <- nil
			continue
		}
		s.cancelOne(p, name, id, func(err error) { answers <- err })
	}
	return s.sum(ctx, answers, len(s.endpoints), 0, false)
}

func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	r := s.holding(h)
	if r != nil {
		r.mu.Lock()
		r.driver.Mode = driver.Shared // for later requests to the other servers
		for i := range r.votes {
			r.votes[i].writer = r.votes[i].sent > 0 // an earlier exchange may reach it late, and grant a write lease
		}
		r.mu.Unlock()
	}
	// Where the writer is in the queue, it leaves it.
	return s.everywhere(ctx, r, h, false, false, func(ctx context.Context, p *endpoint, m member, own driver.Hold) error {
		return r.downgraded(p.index, m.Downgrade(ctx, own))
	}, func(*endpoint, driver.Hold) {})
}

// downgraded records the answer of server i to a downgrade. Without an answer the downgrade is sent
// again.
func (r *request) downgraded(i int, err error) error {
	if r != nil && !undelivered(err) {
		r.mu.Lock()
		r.votes[i].writer = false
		r.mu.Unlock()
	}
	return err
}

// Reduce refuses: see doc.go.
func (s *session) Reduce(context.Context, driver.Hold, int) error { return noMajority("a semaphore") }

// SetCount refuses: see doc.go.
func (s *session) SetCount(context.Context, string, int64) (bool, error) {
	return false, noMajority("a latch")
}

// CountDown refuses: see doc.go.
func (s *session) CountDown(context.Context, string, string) (int64, error) {
	return 0, noMajority("a latch")
}

// Await refuses: see doc.go.
func (s *session) Await(context.Context, string, string) (driver.Reply, error) {
	return driver.Reply{}, noMajority("a latch")
}

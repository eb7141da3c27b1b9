package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Release is driver.Session.Release: at every server at once, also at those that may have
// granted it without our knowing. It returns when a majority has done it; or, while the lease is
// still proven, when so few servers have not answered that they are in nobody's way.
func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	r := s.holding(h)
	proven := false
	if r != nil {
		s.drop(r)
		r.mu.Lock()
		proven = keep == 0 && s.clock.now()-r.proved < s.ttl*9/10
		r.mu.Unlock()
	}
	// Not behind the token that most of them have: another session may have guessed it higher.
	propose := max(s.clock.propose(), h.Token+1)
	if r != nil && (keep > 0 || r.driver.MinHold > 0) {
		r.mu.Lock()
		r.keeps = true
		var others []*post
		for i, p := range s.posts {
			if seat := &r.seats[i]; seat.state != granted {
				seat.state, seat.sent, others = kept, max(seat.sent, 1), append(others, p)
			}
		}
		r.mu.Unlock()
		for _, p := range others {
			s.keepAt(r, p, keep, propose)
		}
	}
	return s.everywhere(ctx, r, h, proven, func(ctx context.Context, _ *post, m member, own driver.Hold) error {
		return m.Pass(ctx, own, keep, propose)
	})
}

// keepAt takes a server that has not granted r, as far as is known, and keeps the name there as well: what is kept
// after the release nobody extends any more, so it must not stand on a bare majority, of which one may fail.
func (s *session) keepAt(r *request, p *post, keep time.Duration, propose uint64) {
	req := r.driver
	req.Wait = false
	s.at(p, func(ctx context.Context, m member) error {
		reply, _, err := m.Ask(ctx, &req, propose)
		switch {
		case err != nil:
			return err
		case reply.Token == 0: // another has it, and this request may be in line
			return m.Cancel(ctx, req.Name, req.ID)
		}
		return m.Pass(ctx, driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}, keep, 0)
	}, func(err error) {
		if unheard(err) {
			p.owe(req.Name, req.ID, s.ttl)
		}
	})
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

// everywhere does something to the grant h at all servers, under the token that it has at each. It
// takes away what r has at those that have not granted it. proven says that the lease has not run out.
func (s *session) everywhere(ctx context.Context, r *request, h driver.Hold, proven bool, f func(context.Context, *post, member, driver.Hold) error) error {
	answers := make(chan error, len(s.posts))
	asked := 0
	for i, p := range s.posts {
		own, has := h, true
		if r != nil {
			r.mu.Lock()
			seat := &r.seats[i]
			if seat.state == granted {
				own.Token = seat.token
			}
			// Where it has nothing any more, the server may tell whether another holds it.
			has = seat.state == granted || seat.state == nothing && seat.sent <= seat.heard
			seat.passing = has && r.over
			never := seat.sent == 0 || seat.state == kept
			r.mu.Unlock()
			if never {
				continue
			}
		}
		if !has {
			s.cancelOne(p, h.Name, h.ID, func(error) {})
			continue
		}
		asked++
		s.at(p, func(ctx context.Context, m member) error { return f(ctx, p, m, own) }, func(err error) {
			// What is kept for a minimum is not taken back there: the grant runs out, and the minimum stands.
			if unheard(err) && r != nil && r.isOver() && !r.isKept() {
				p.owe(h.Name, h.ID, s.ttl)
			}
			s.passed(r, p)
			answers <- err
		})
	}
	return s.sum(ctx, answers, asked, proven)
}

// passed notes that p has answered to the release of r, and cancels what it has granted since.
func (s *session) passed(r *request, p *post) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seat := &r.seats[p.index]
	if seat.stray {
		s.cancelOne(p, r.driver.Name, r.driver.ID, func(error) {})
	}
	seat.passing, seat.stray = false, false
}

// unsure reports whether what was asked may have been done, in spite of err.
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

// sum waits for the answers of a majority to something that was asked of so many servers. If it is proven that
// nothing has ended by itself, it is enough that a majority is rid of it, asked or not.
func (s *session) sum(ctx context.Context, answers <-chan error, asked int, proven bool) error {
	done, gone, taken := 0, 0, 0
	var errs []error
	var late <-chan time.Time
	need := s.b.need()
	for open := asked; open > 0; open-- {
		rid := proven && done > 0 && gone+taken == 0 && open+len(errs) <= len(s.posts)-need
		if late == nil && (rid || done+open+len(errs) < need) { // it is over; more may tell whether another has it
			timer := time.NewTimer(grace)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case err := <-answers:
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
			open = 1 // and that is that
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
		}
		if done >= need {
			return nil
		}
	}
	switch {
	case proven && done > 0 && gone+taken == 0 && asked-done <= len(s.posts)-need:
		return nil
	case len(errs) >= need && !slices.ContainsFunc(errs, unsure): // a majority has refused
		return s.b.verdict(errs)
	case done > 0 && done+len(errs) >= need: // some have done it, whatever the others say
		return &failure{driver.ErrUncertain, fmt.Sprintf("%d of %d servers failed", len(errs), len(s.posts)), errs}
	case done+len(errs) >= need:
		return s.b.verdict(errs)
	case taken > 0:
		return driver.ErrTaken
	case gone == 0 && len(errs) > 0:
		return s.b.verdict(errs)
	}
	return driver.ErrGone
}

// Cancel is driver.Session.Cancel: at every server. It returns when a majority has done it.
func (s *session) Cancel(ctx context.Context, name, id string) error {
	if r := s.find(id); r != nil {
		s.drop(r)
	}
	if s.isClosed() {
		return nil // Close has given everything back
	}
	answers := make(chan error, len(s.posts))
	for _, p := range s.posts {
		s.cancelOne(p, name, id, func(err error) { answers <- err })
	}
	return s.sum(ctx, answers, len(s.posts), false)
}

// cancelOne cancels a request at one server. If that does not hear it now, it will be told later.
func (s *session) cancelOne(p *post, name, id string, done func(error)) {
	s.at(p, func(ctx context.Context, m member) error { return m.Cancel(ctx, name, id) }, func(err error) {
		if unheard(err) {
			p.owe(name, id, s.ttl)
		}
		done(err)
	})
}

// settleDebts tells the servers what they have yet to hear.
func (s *session) settleDebts() {
	for _, p := range s.posts {
		if p.slow.Load() != 0 || p.at() == nil {
			continue
		}
		if owed := p.owed(); len(owed) > 0 {
			s.background(func() {
				for id, what := range owed {
					s.cancelOne(p, what.name, id, func(error) {})
				}
			})
		}
	}
}

// Downgrade is driver.Session.Downgrade.
func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	r := s.holding(h)
	if r != nil {
		r.mu.Lock()
		r.driver.Mode = driver.Shared // what is asked of the other servers from now on
		for i := range r.seats {
			r.seats[i].writer = r.seats[i].state == granted
		}
		r.mu.Unlock()
	}
	err := s.everywhere(ctx, r, h, false, func(ctx context.Context, p *post, m member, own driver.Hold) error {
		return r.downgraded(p.index, m.Downgrade(ctx, own))
	})
	if r != nil {
		r.mu.Lock()
		for i := range r.seats { // there the writer was taken out of the line
			if seat := &r.seats[i]; seat.state == waiting {
				r.gone(i, s.stamp.Add(1))
			}
		}
		r.mu.Unlock()
	}
	return err
}

// downgraded notes what server i has said to a downgrade, which it is told of again if it did not hear it.
func (r *request) downgraded(i int, err error) error {
	if r != nil && !unheard(err) {
		r.mu.Lock()
		r.seats[i].writer = false
		r.mu.Unlock()
	}
	return err
}

// SetCount refuses: see doc.go.
func (s *session) SetCount(context.Context, string, int64) (bool, error) {
	return false, noMajority("a latch")
}

// CountDown refuses, as SetCount.
func (s *session) CountDown(context.Context, string, string) (int64, error) {
	return 0, noMajority("a latch")
}

// Await refuses, as SetCount.
func (s *session) Await(context.Context, string, string) (driver.Reply, error) {
	return driver.Reply{}, noMajority("a latch")
}

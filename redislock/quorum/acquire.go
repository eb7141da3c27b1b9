package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Acquire is driver.Session.Acquire. It returns when a majority has granted, or cannot grant any more.
// A majority is asked first, at once, if nobody has been in the way lately, and the others if one of
// it refuses or takes its time: a lock that nobody contends for costs no more servers than needed.
func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := req.Check(); err != nil {
		return driver.Reply{}, err
	}
	if req.Mode == driver.Permits {
		return driver.Reply{}, noMajority("a semaphore")
	}
	r, err := s.enter(req, driver.Hold{})
	if err != nil {
		return driver.Reply{}, err
	}
	for round := 0; ; round++ {
		reply, err := s.ask(ctx, r)
		if err != nil || reply.Token != 0 || req.Wait {
			return reply, err
		}
		// It does not wait: unless somebody may have a majority, several try at once.
		r.mu.Lock()
		_, most := r.inTheWay()
		at := r.standing(r.since)
		stays := r.first(r.since)
		r.mu.Unlock()
		if most+at.failed+at.open >= s.b.need() || round == tries {
			s.forsake(ctx, r, true)
			return reply, nil
		}
		if !stays {
			s.forsake(ctx, r, false)
		}
		if !sleep(ctx, tryAgain<<round) {
			s.forsake(ctx, r, true)
			return driver.Reply{}, driver.Spent(fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err()))
		}
	}
}

const (
	tries    = 6 // more, of a request that does not wait, when nobody has a majority
	tryAgain = 400 * time.Microsecond
)

// noMajority is the error for what a majority of servers cannot keep.
func noMajority(what string) error {
	return fmt.Errorf("%w: a quorum of independent servers keeps no %s: two majorities have a server in common, not a permit or a count; "+
		"allowed are mutexes and read/write locks", driver.ErrInvalid, what[len("a "):])
}

// first reports whether the request holds the first of the servers that have answered.
func (r *request) first(since int64) bool {
	for _, i := range r.order {
		if s := &r.seats[i]; s.heard >= since {
			return s.state == granted
		}
	}
	return false
}

// enter returns the request of that id, which is asked again, or new, and then perhaps made by adopting h.
func (s *session) enter(req *driver.Request, h driver.Hold) (*request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	r := s.requests[req.ID]
	if r == nil {
		r = newRequest(req, len(s.posts))
		r.adopted = h
		s.requests[req.ID] = r
	}
	return r, nil
}

// ask makes one exchange with all servers about r.
func (s *session) ask(ctx context.Context, r *request) (driver.Reply, error) {
	stamp, began := s.stamp.Add(1), s.clock.now()
	r.mu.Lock()
	// From now on the caller may count a lease from this exchange.
	r.since, r.sinceAt, r.token, r.asking = stamp, began, 0, true
	r.claims = 0
	drain(r.wake)
	drain(r.news)
	r.mu.Unlock()
	defer s.heed(r)
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
		at := r.standing(stamp)
		token := r.agreed(stamp)
		if token != 0 {
			r.token, r.proved = token, began
			r.mu.Unlock()
			if len(first) < len(s.posts) {
				s.completeSoon(r)
			}
			s.quick(r.driver.Name, s.clock.now()-began)
			return driver.Reply{Token: token}, nil
		}
		if len(rest) > 0 && at.refused+at.failed > 0 {
			r.mu.Unlock()
			askRest()
			continue
		}
		open := 0 // of those that can be expected to answer soon
		for i, p := range s.posts {
			if seat := &r.seats[i]; seat.sent >= stamp && seat.heard < stamp && seat.failed < stamp && p.slow.Load() == 0 {
				open++
			}
		}
		switch {
		case r.over && s.isClosed():
			r.mu.Unlock()
			return driver.Reply{}, driver.ErrClosed
		case r.over:
			r.mu.Unlock()
			return driver.Reply{}, driver.Spent(fmt.Errorf("%w: the request was cancelled while it was asked for", driver.ErrUncertain))
		case at.granted >= r.need && open == 0:
			since := r.since
			r.raising = true
			r.mu.Unlock()
			err := s.agree(ctx, r, since)
			r.mu.Lock()
			r.raising = false
			r.mu.Unlock()
			if err != nil {
				return driver.Reply{}, err
			}
			continue
		case at.failed > len(s.posts)-r.need:
			err := s.b.verdict(r.errs(stamp))
			lined := r.lined()
			r.mu.Unlock()
			if !lined && !errors.Is(err, driver.ErrUncertain) { // nobody will ask for what a minority has granted
				s.forsake(ctx, r, true)
				err = driver.Spent(err)
			}
			return driver.Reply{}, err
		case at.granted+at.open < r.need && open == 0 && at.granted+at.refused >= r.need:
			s.contended(r.driver.Name, s.clock.now()-began)
			if err := r.finalError(stamp); err != nil {
				r.mu.Unlock()
				s.forsake(ctx, r, true)
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
		case <-r.news:
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

// errs are the errors of one exchange.
func (r *request) errs(stamp int64) (errs []error) {
	for i := range r.seats {
		if s := &r.seats[i]; s.failed >= stamp && s.heard < stamp {
			errs = append(errs, s.err)
		}
	}
	return errs
}

// finalError is an error of one server that says that the request can never be granted by any.
func (r *request) finalError(stamp int64) error {
	for _, err := range r.errs(stamp) {
		if driver.IsFinal(err) && !lone(err) {
			return err
		}
	}
	return nil
}

// notice marks the servers that have not answered this exchange: they are not waited for until
// they do.
func (s *session) notice(r *request, stamp int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range s.posts {
		if seat := &r.seats[i]; seat.sent >= stamp && seat.heard < stamp && seat.failed < stamp {
			p.slows(s.clock.now().Microseconds())
		}
	}
}

// askOne asks one server, in the background.
func (s *session) askOne(r *request, p *post, stamp int64, propose uint64) {
	r.mu.Lock()
	r.seats[p.index].sent = stamp
	req := r.driver
	req.Wait = req.Wait || r.token != 0 // a grant that a majority has is waited for at the others
	r.mu.Unlock()
	var reply driver.Reply
	var place uint64
	s.at(p, func(ctx context.Context, m member) (err error) {
		reply, place, err = m.Ask(ctx, &req, propose)
		return err
	}, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case r.over && err != nil:
			p.owe(req.Name, req.ID, s.ttl)
			return
		case r.over && r.seats[p.index].passing: // it must not be ended before the release has been answered
			r.seats[p.index].stray = reply.Token != 0 || reply.Wake != nil
		case r.over: // this may have overtaken, or been overtaken by, what has ended it
			if reply.Token != 0 && !r.keeps || reply.Wake != nil {
				s.cancelOne(p, req.Name, req.ID, func(error) {})
			}
		case err != nil:
			r.fails(p.index, stamp, err)
		case reply.Token != 0:
			s.grantedAt(r, p, stamp, reply.Token)
		default:
			r.waits(p.index, stamp, place, reply)
			r.pushed(p.index) // it may have come before
		}
		s.settle(r)
		if !r.asking {
			s.align(r)
		}
	})
}

// heed lets what is pushed decide, when nobody asks any more.
func (s *session) heed(r *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
	s.settle(r)
	s.align(r)
}

// forsake gives back what a request has that no majority has granted, and forgets it if it is over. It
// waits for the servers that answer; the others are told later, so the ID of a request that is over is spent.
func (s *session) forsake(ctx context.Context, r *request, over bool) {
	if over {
		s.drop(r)
	}
	r.mu.Lock()
	var from []*post
	for i, p := range s.posts {
		seat := &r.seats[i]
		if seat.state == granted || seat.state == waiting || seat.sent > seat.heard {
			from = append(from, p)
			seat.state, seat.shut = nothing, true
		}
	}
	r.mu.Unlock()
	answers := make(chan int, len(from))
	for _, p := range from {
		s.cancelOne(p, r.driver.Name, r.driver.ID, func(err error) {
			if err != nil {
				answers <- -1
				return
			}
			answers <- p.index
		})
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for range from {
		select {
		case i := <-answers:
			if i >= 0 {
				r.mu.Lock()
				r.seats[i].shut, r.seats[i].heard = false, max(r.seats[i].heard, s.stamp.Add(1))
				r.mu.Unlock()
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

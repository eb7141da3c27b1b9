package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// Acquire returns when a majority has granted, or cannot grant any more. If the name was free
// lately, it first asks a majority only. It asks the others if one server refuses or is slow. So an
// uncontended lock costs no more servers than necessary.
func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := cmp.Or(req.Check(), req.CheckTokens(s.b.Kinds())); err != nil {
		return driver.Reply{}, err
	}
	if req.Mode == driver.Permits {
		return driver.Reply{}, noMajority("a semaphore")
	}
	r, err := s.register(req, driver.Hold{})
	if err != nil {
		return driver.Reply{}, err
	}
	if req.Wait {
		return s.ask(ctx, r)
	}
	reply, err := s.try(ctx, r)
	for pause := (backoff.Pause{First: grace / 2, Most: decisive}); err == nil && reply.Token == 0; {
		if !s.retriesLater(ctx, r, pause.Next()) {
			s.giveUp(ctx, r, true)
			break
		}
		part, cancel := context.WithDeadline(ctx, s.retriesUntil(ctx))
		again, failed := s.try(part, r)
		if failed != nil && part.Err() != nil && ctx.Err() == nil { // the refusal stands
			s.giveUp(ctx, r, true)
			cancel()
			break
		}
		cancel()
		reply, err = again, failed
	}
	if err == nil && reply.Token != 0 && req.MinHold > 0 {
		if err = s.setMinimum(ctx, r); err != nil {
			return driver.Reply{}, err
		}
	}
	return reply, err
}

// try asks for a request that does not wait. Unless another may have a majority, several try at once, so it asks again.
// A refused request keeps what it has.
func (s *session) try(ctx context.Context, r *request) (driver.Reply, error) {
	for round := 0; ; round++ {
		reply, err := s.ask(ctx, r)
		if err != nil || reply.Token != 0 {
			return reply, err
		}
		r.mu.Lock()
		_, most := r.inTheWay()
		at := r.tally(r.since.stamp)
		stays := r.first(r.since.stamp)
		r.mu.Unlock()
		if most+at.failed+at.open >= s.b.need() || round == tries {
			return reply, nil
		}
		if !stays {
			s.giveUp(ctx, r, false)
		}
		if !backoff.Sleep(ctx, tryAgain<<round) {
			s.giveUp(ctx, r, true)
			return driver.Reply{}, driver.Spent(fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err()))
		}
	}
}

const (
	tries    = 6 // repeated attempts of a request that does not wait, when no request has a majority
	tryAgain = 400 * time.Microsecond
)

// noMajority returns the error for kinds that a majority of servers cannot keep.
func noMajority(what string) error {
	return fmt.Errorf(
		"%w: a quorum of independent servers keeps no %s: two majorities have a server in common, not a permit or a count; "+
			"allowed are mutexes and read/write locks", driver.ErrInvalid, what[len("a "):])
}

// first reports whether the request holds the first of the servers that have answered.
func (r *request) first(since int64) bool {
	for _, i := range r.order {
		if s := &r.votes[i]; s.answered >= since {
			return s.state == granted
		}
	}
	return false
}

// register returns the request with that ID, or makes a new one, perhaps by adopting h.
func (s *session) register(req *driver.Request, h driver.Hold) (*request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	r := s.requests[req.ID]
	if r == nil {
		r = newRequest(req, len(s.endpoints))
		r.adopted = h
		s.requests[req.ID] = r
	}
	return r, nil
}

// giveUp gives back the grants and places of a request that has no majority, and forgets it if over
// is true. It waits for the servers that answer. The others get the cancellation later, so the ID
// of a forgotten request is spent.
func (s *session) giveUp(ctx context.Context, r *request, over bool) {
	if over {
		s.drop(r)
	}
	r.mu.Lock()
	var from []*endpoint
	for i, p := range s.endpoints {
		vote := &r.votes[i]
		if vote.state == granted || vote.state == waiting || vote.state == yielding ||
			vote.sent > vote.answered && !vote.unreached() || vote.open > 0 || vote.uncounted || over && vote.shut {
			from = append(from, p)
		}
	}
	r.mu.Unlock()
	answers := make(chan error, len(from))
	for _, p := range from {
		s.withdraw(r, p, func(err error) { answers <- err })
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for range from {
		select {
		case <-answers:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// joining returns the servers that have no vote on r only because a new session is still joining them: Open waits
// only briefly for servers beyond a majority. It returns none if they could not give r a majority, or if Open was
// more than a second ago.
func (s *session) joining(r *request) (all []*endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range s.endpoints {
		if r.votes[i].unreached() {
			all = append(all, p)
		}
	}
	if s.joinPatience() <= 0 || r.tally(r.since.stamp).granted+len(all) < r.need {
		return nil
	}
	return all
}

func (s *session) joinPatience() time.Duration { return s.opened + decisive - s.clock.now() }

// unreached reports whether no question has been sent to the server, because it is still being joined.
func (v *vote) unreached() bool {
	return v.open == 0 && v.failed >= v.sent && errors.Is(v.err, errJoining)
}

// retriesUntil returns when the next try of a refused request ends, even if a server has been joined and is silent. The
// caller's context leaves time after that to give back what servers have granted.
func (s *session) retriesUntil(ctx context.Context) time.Time {
	until := time.Now().Add(min(s.joinPatience()+grace, 10*grace))
	if end, ok := ctx.Deadline(); ok && end.Add(-grace*6/5).Before(until) {
		until = end.Add(-grace * 6 / 5)
	}
	return until
}

// retriesLater waits until a request that was refused can be tried again, because one of the servers may have been
// joined. Meanwhile it has nothing that others may want. It returns false if there is no such server, or no time.
func (s *session) retriesLater(ctx context.Context, r *request, pause time.Duration) bool {
	s.mu.Lock()
	joins := s.joins
	s.mu.Unlock()
	joining := s.joining(r)
	pause = min(pause+rand.N(pause), time.Until(s.retriesUntil(ctx))-grace) // at random: others may do the same
	if len(joining) == 0 || pause <= 0 {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	s.giveUp(ctx, r, false)
	if slices.ContainsFunc(joining, func(p *endpoint) bool { return !p.isJoining() }) {
		return true
	}
	for !r.isOver() {
		select {
		case <-joins:
			return true
		case <-timer.C:
			return true
		case <-r.changed: // perhaps by an answer to the try before
		case <-ctx.Done():
			return false
		}
	}
	return true // the next try says so
}

package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Open starts a session at every server that answers, and retries the others as long as the session
// lasts. A majority must answer.
func (b *Backend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if err := cmp.Or(b.err, cfg.Check()); err != nil {
		return nil, err
	}
	if cfg.TTL > b.quarantine {
		return nil, fmt.Errorf("%w ttl %v: allowed are %v to the quarantine of this quorum, %v", driver.ErrInvalid, cfg.TTL,
			driver.MinTTL, b.quarantine)
	}
	b.clocks.uses(cfg.TTL)
	s := newSession(b, cfg)
	tried := make(chan tried, len(b.servers))
	for _, p := range s.endpoints {
		s.bg.Go(func() { s.join(p, tried) })
	}
	if err := s.mayBegin(ctx, tried); err != nil {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.end()
		if !b.background(s.shutDown) {
			s.shutDown()
		}
		return nil, err
	}
	s.opened = s.clock.now()
	return s, nil
}

// newSession returns a session that has not joined any server.
func newSession(b *Backend, cfg driver.SessionConfig) *session {
	s := &session{b: b, cfg: cfg, ttl: cfg.TTL.Truncate(time.Microsecond),
		jobs: make(chan func()), joins: make(chan struct{}),
		requests: map[string]*request{}, keptNames: map[string]*keptName{}, streak: map[string]int8{},
		clock: newClock(len(b.servers), redislock.Lead(b.quarantine))}
	s.life, s.end = context.WithCancel(context.Background())
	for i, srv := range b.servers {
		s.endpoints = append(s.endpoints, &endpoint{server: srv, index: i, clocks: b.clocks})
	}
	return s
}

// tried is the first result of joining a server.
type tried struct {
	server      int
	quarantined bool // it is in quarantine
	err         error
}

// mayBegin waits for a majority that can vote, and then briefly for the others; or until all servers
// have been tried.
func (s *session) mayBegin(ctx context.Context, tried <-chan tried) error {
	var errs []error
	moment := make(<-chan time.Time)
	var timer *time.Timer
	var ripe []int // servers that are not in quarantine
	for joined := 0; joined+len(errs) < len(s.endpoints); {
		select {
		case one := <-tried:
			var same *duplicateServer
			switch {
			case one.err == nil:
				joined++
				if !one.quarantined {
					ripe = append(ripe, one.server)
				}
			case errors.As(one.err, &same):
				return one.err
			default:
				errs = append(errs, one.err)
			}
		case <-moment:
			return nil
		case <-ctx.Done():
			if len(errs) == 0 {
				return fmt.Errorf("%w: %d of %d servers have answered: %w", driver.ErrUnavailable, joined, len(s.endpoints),
					ctx.Err())
			}
			return fmt.Errorf("%w: %w", s.b.verdict(errs), ctx.Err())
		}
		if len(errs) > len(s.endpoints)-s.b.need() {
			return s.b.verdict(errs)
		}
		voting := 0
		for _, i := range ripe {
			if s.b.clocks.mayVote(i) { // a later answer may have decided that
				voting++
			}
		}
		if voting >= s.b.need() && timer == nil {
			timer = time.NewTimer(grace)
			defer timer.Stop()
			moment = timer.C
		}
	}
	return nil
}

// join opens the session at one server, however long that takes. The first result goes to first.
func (s *session) join(p *endpoint, first chan<- tried) {
	for pause := (backoff.Pause{First: redial, Most: time.Second}); ; {
		ctx, cancel := context.WithTimeout(s.life, openLimit)
		quarantined, err := s.joined(ctx, p, first != nil)
		cancel()
		p.fails(err)
		if first != nil {
			first <- tried{p.index, quarantined, err}
			first = nil
		}
		s.joinTried(p)
		if err == nil {
			return
		}
		if !pause.Wait(s.life) {
			return
		}
	}
}

// joined opens the session at one server. At the first try the others are being asked, too.
func (s *session) joined(ctx context.Context, p *endpoint, first bool) (quarantined bool, err error) {
	m, err := p.get(ctx)
	if err != nil {
		return false, err
	}
	sent := s.clock.now()
	birth, err := m.Birth(ctx, false)
	if err != nil {
		return false, ofServer(p.Name, err)
	}
	s.clock.saw(p.index, sent, birth.Clock)
	if err := s.b.meets(p.index, birth.Run); err != nil {
		return false, err
	}
	at, err := m.Join(ctx, s.cfg, redislock.Hooks{
		Pushed:  func(id string) { s.pushed(p, id) },
		Claimed: func(id string, rank int, by string) { s.claimed(p, id, rank, by) },
	})
	switch {
	case errors.Is(err, driver.ErrInvalid):
		return false, err
	case err != nil:
		return false, ofServer(p.Name, err)
	}
	c := s.b.clocks
	if first && c.anyNew() {
		c.decide(ctx, s.clock.start.Sub(c.start))
	}
	if t := c.trusts(p.index); t == doubted || t == unseen && !first {
		c.look(lookMost)
	}
	var here member = at
	p.here.Store(&here)
	return birth.Left > 0, nil
}

// joinTried tells requests that a try to join p has ended. It asks p about those that wait: their next renewal may be
// long after.
func (s *session) joinTried(p *endpoint) {
	s.mu.Lock()
	close(s.joins)
	s.joins = make(chan struct{})
	var all []*request
	if p.at() != nil {
		all = slices.Collect(maps.Values(s.requests))
	}
	s.mu.Unlock()
	for _, r := range all {
		r.mu.Lock()
		vote := &r.votes[p.index]
		ask := r.driver.Wait && !r.over && r.token == 0 && s.clock.now() < r.since.end() &&
			vote.state == nothing && vote.settled()
		r.mu.Unlock()
		if ask {
			s.askOne(r, p, s.stamp.Add(1), s.clock.propose())
		}
	}
}

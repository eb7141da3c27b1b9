package quorum

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// session implements driver.Session, with a session at each server.
type session struct {
	b         *Backend
	cfg       driver.SessionConfig
	ttl       time.Duration
	endpoints []*endpoint
	clock     *clock
	stamp     atomic.Int64    // of the last exchange
	life      context.Context // ends with Close
	end       context.CancelFunc
	bg        sync.WaitGroup // background work

	jobs    chan func() // to idle workers
	workers sync.WaitGroup

	unreleased unreleased    // see missedRelease
	opened     time.Duration // when Open returned, by the session's clock

	mu        sync.Mutex
	requests  map[string]*request
	keptNames map[string]*keptName // by the ID of the request, see keepsName
	closed    bool
	joins     chan struct{}   // closed, and made anew, when a try to join a server has ended
	streak    map[string]int8 // of contended names, see fastpath.go
	pace      time.Duration   // how long a majority takes
	partial   []*request      // see completeSoon
	bound     context.Context // shared by exchanges, see limited
	until     time.Time
}

const (
	openLimit = 5 * time.Second
	lookLimit = 10 * time.Second // for operators' requests, which may return a long list
	askLimit  = 3 * time.Second  // for one server's answer, at most; see limited
	// closeLimit lets a server finish exchanges under way, and then close the session.
	closeLimit = 2 * askLimit

	// grace is how long to wait for servers beyond a majority, where waiting does no harm.
	grace = 50 * time.Millisecond
	// decisive is how long to wait for a server that may decide.
	decisive = 20 * grace
)

// TTL returns the TTL that was asked for, in whole microseconds.
func (s *session) TTL() time.Duration { return s.ttl }

// Lost is never closed: each lease ends by itself.
func (s *session) Lost() <-chan struct{} { return nil }

// limited returns the context of an exchange with one server, which may outlast its caller.
// Exchanges that begin at about the same time share a context.
func (s *session) limited() context.Context {
	limit := min(max(s.ttl/3, askLimit/2), askLimit)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.bound == nil || !now.Before(s.until) {
		s.until = now.Add(limit / 8)
		ctx, cancel := context.WithDeadline(s.life, s.until.Add(limit))
		_ = cancel // its timer ends it: exchanges may still use it when the next is made
		s.bound = driver.OwnBound(ctx)
	}
	return s.bound
}

// at makes an exchange with one server in the background.
func (s *session) at(p *endpoint, f func(context.Context, member) error, done func(error)) {
	ctx := s.limited()
	if err := s.begin(p); err != nil {
		done(err)
		return
	}
	one := func() {
		defer s.bg.Done()
		defer p.busy.Done()
		done(p.do(s.clock.now().Microseconds(), func(m member) error { return f(ctx, m) }))
	}
	select {
	case s.jobs <- one:
	default:
		s.workers.Go(func() { s.work(one) })
	}
}

// work makes an exchange, and then others from jobs. A goroutine whose stack has already grown
// costs half as much as a new one.
func (s *session) work(one func()) {
	idle := time.NewTimer(workerIdle)
	defer idle.Stop()
	for {
		one()
		idle.Reset(workerIdle)
		select {
		case one = <-s.jobs:
		case <-idle.C:
			return
		case <-s.life.Done():
			return
		}
	}
}

const workerIdle = time.Second

// begin counts background work, and at p if it is an exchange. It fails if the session is closed.
func (s *session) begin(p *endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.bg.Add(1)
	if p != nil {
		p.busy.Add(1)
	}
	return nil
}

func (s *session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *session) find(id string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[id]
}

// drop forgets a request. Later grants of it are given back.
func (s *session) drop(r *request) {
	s.mu.Lock()
	if s.requests[r.driver.ID] == r {
		delete(s.requests, r.driver.ID)
	}
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.wake.Drain()
}

// Close waits, at each server, for exchanges under way: one may be a grant, which the session there
// must know before it is closed. It returns when a majority is closed and the others are closed or
// slow; those continue in the background.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	requests := s.requests
	s.requests = map[string]*request{}
	clear(s.keptNames)
	s.mu.Unlock()
	for _, r := range requests {
		r.mu.Lock()
		r.end()
		r.mu.Unlock()
	}
	errs, left := make(chan error, len(s.endpoints)), make(chan struct{})
	finish := func() {
		defer close(left)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		var all sync.WaitGroup
		for _, p := range s.endpoints {
			all.Go(func() { errs <- s.closeAt(bound, p) })
		}
		all.Wait()
		s.shutDown()
	}
	if !s.b.background(finish) {
		finish()
	}
	var failed []error
	var patience <-chan time.Time
	for done, answered := 0, 0; done < len(s.endpoints); done++ {
		select {
		case err := <-errs:
			if err != nil {
				failed = append(failed, err)
			} else if answered++; answered == s.b.need() {
				patience = time.After(4 * grace)
			}
		case <-patience:
			return nil
		case <-ctx.Done():
			if answered < s.b.need() {
				return fmt.Errorf("%w: closed at %d of %d servers: %w", driver.ErrUncertain, answered, len(s.endpoints), ctx.Err())
			}
			return nil
		}
	}
	<-left
	if len(failed) > len(s.endpoints)-s.b.need() {
		return s.b.verdict(failed)
	}
	return nil
}

// closeAt closes the session at one server.
func (s *session) closeAt(ctx context.Context, p *endpoint) error {
	m := p.at()
	if m == nil {
		return fmt.Errorf("%w: %s: not connected", driver.ErrUnavailable, p.Name)
	}
	idle := make(chan struct{})
	s.bg.Go(func() { p.busy.Wait(); close(idle) })
	select {
	case <-idle:
	case <-ctx.Done():
	}
	end, _ := ctx.Deadline()
	part, cancel := context.WithDeadline(ctx, end.Add(-closeLimit/6)) // the rest is for the session itself
	defer cancel()
	p.cancelPending(part, m)
	return m.Close(ctx)
}

// shutDown ends the background work, and closes sessions that were opened meanwhile.
func (s *session) shutDown() {
	s.end()
	s.bg.Wait()
	s.workers.Wait()
	for _, p := range s.endpoints {
		if m := p.at(); m != nil {
			_ = m.Close(s.life) // it has no requests, or has been closed
		}
	}
}

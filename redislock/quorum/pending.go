package quorum

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// pendingCancel is a request that has ended; the server may not know that.
type pendingCancel struct {
	name  string
	from  time.Time // when to cancel it there
	until time.Time // when it expires there
}

const (
	mostPending = 8192        // cancellations kept for a silent server; the others expire there
	flushAtOnce = 64          // cancellations that are sent together
	flushFor    = time.Second // how long their answers are waited for before others are sent
)

// cancelOne cancels a request at one server. The session repeats that until the server has received it.
func (s *session) cancelOne(p *endpoint, name, id string, done func(error)) {
	s.cancelUntil(p, id, s.pendingFrom(name, time.Now()), done)
}

// cancelUntil is cancelOne for a cancellation that is pointless after some time.
func (s *session) cancelUntil(p *endpoint, id string, what pendingCancel, done func(error)) {
	s.at(p, func(ctx context.Context, m member) error { return m.Cancel(ctx, what.name, id) }, func(err error) {
		if undelivered(err) || errors.Is(err, driver.ErrClosed) { // Close sends what is pending
			s.pendAgain(p, id, what)
		}
		done(err)
	})
}

// pendAgain is pend after a try. The release of the request may have been repeated meanwhile.
func (s *session) pendAgain(p *endpoint, id string, what pendingCancel) {
	s.unreleased.mu.Lock() // see missedRelease
	defer s.unreleased.mu.Unlock()
	if r, open := s.unreleased.all[id]; open && r.from.After(what.from) {
		what.from = r.from
	}
	s.pend(p, id, what)
}

// cancelLater cancels a request at one server after a moment, in which an exchange with it has just failed.
func (s *session) cancelLater(p *endpoint, name, id string) {
	s.pend(p, id, s.pendingFrom(name, time.Now()))
}

// pendingFrom is a cancellation that is to be sent from then on, until everything that the request has now at a server
// has expired there.
func (s *session) pendingFrom(name string, from time.Time) pendingCancel {
	return pendingCancel{name, from, time.Now().Add(2 * s.ttl)}
}

// missedRelease cancels a request at a server that may have missed its release. Until the release is successful, its
// caller repeats it, and a cancellation in between would look like the end of the grant. Then it is cancelled
// only if the caller does not come back.
func (s *session) missedRelease(p *endpoint, name, id string) {
	from := time.Now()
	s.unreleased.mu.Lock() // also while it is noted: releaseEnds makes it due
	defer s.unreleased.mu.Unlock()
	if _, open := s.unreleased.all[id]; open {
		from = from.Add(s.ttl / 3)
	}
	s.pend(p, id, s.pendingFrom(name, from))
}

// cancelStray cancels what a server gave to a request after its end: at once, unless the release of the request may be
// repeated; see missedRelease.
func (s *session) cancelStray(p *endpoint, name, id string) {
	s.unreleased.mu.Lock()
	_, open := s.unreleased.all[id]
	s.unreleased.mu.Unlock()
	if open {
		s.missedRelease(p, name, id)
	} else {
		s.cancelOne(p, name, id, func(error) {})
	}
}

// unreleased are requests whose release has begun, and has not been successful.
type unreleased struct {
	mu  sync.Mutex
	all map[string]openRelease // by ID
}

// openRelease is a release that its caller may repeat.
type openRelease struct {
	from  time.Time // when a server that has missed it may cancel the request
	until time.Time // when the grants have expired
}

// releaseBegins notes that a request is being released, perhaps again.
func (s *session) releaseBegins(id string) {
	s.unreleased.mu.Lock()
	defer s.unreleased.mu.Unlock()
	now := time.Now()
	if s.unreleased.all == nil {
		s.unreleased.all = map[string]openRelease{}
	}
	if len(s.unreleased.all) >= mostPending {
		maps.DeleteFunc(s.unreleased.all, func(_ string, r openRelease) bool { return r.until.Before(now) })
	}
	_, again := s.unreleased.all[id]
	from := now.Add(s.ttl / 3)
	if again || len(s.unreleased.all) < mostPending {
		s.unreleased.all[id] = openRelease{from, now.Add(2 * s.ttl)}
	}
	if again { // a server that has not received it so far may receive it now
		for _, p := range s.endpoints {
			p.cancelFrom(id, from)
		}
	}
}

// releaseEnds notes that a majority no longer has the grant of a request.
func (s *session) releaseEnds(id string) {
	s.unreleased.mu.Lock()
	defer s.unreleased.mu.Unlock()
	delete(s.unreleased.all, id)
	for _, p := range s.endpoints {
		p.cancelFrom(id, time.Time{})
	}
}

// pend records that p must still receive a cancellation. A majority may need this server: others then wait for the
// name until it has. So the session tries again soon.
func (s *session) pend(p *endpoint, id string, what pendingCancel) {
	if p.addPending(id, what) && s.begin(nil) == nil { // otherwise Close sends it
		go func() {
			defer s.bg.Done()
			s.sendPending(p)
		}()
	}
}

// sendPending sends pending cancellations to one server, until there are none or the session is closed. A server
// that owes answers gets only one at a time.
func (s *session) sendPending(p *endpoint) {
	for pause := (backoff.Pause{First: redial, Most: time.Second}); pause.Wait(s.life); {
		for some := true; some; {
			if s.begin(p) != nil {
				return
			}
			most := flushAtOnce
			if p.slow.Load() != 0 {
				most = 1
			}
			pending, left, due := p.takePending(most, false)
			answers := make(chan error, len(pending))
			for id, what := range pending {
				s.cancelUntil(p, id, what, func(err error) { answers <- err })
			}
			s.bg.Done()
			p.busy.Done() // Close waits until all that is left is pending again
			if !left {
				return
			}
			if len(pending) == 0 {
				p.waitPending(s.life, due)
				pause.Reset()
			}
			if some = s.received(answers, len(pending)); some {
				pause.Reset()
			}
		}
	}
}

// received waits for the answers to n cancellations, but not for long, and reports whether the server has received
// any.
func (s *session) received(answers <-chan error, n int) (some bool) {
	timer := time.NewTimer(flushFor)
	defer timer.Stop()
	for ; n > 0; n-- {
		select {
		case err := <-answers:
			some = some || !undelivered(err) && !errors.Is(err, driver.ErrClosed)
		case <-timer.C:
			return some
		case <-s.life.Done():
			return false
		}
	}
	return some
}

// addPending records that the server must still receive a cancellation. It reports whether the caller must see to
// that: no goroutine does yet.
func (p *endpoint) addPending(id string, what pendingCancel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pendingCancels == nil {
		p.pendingCancels, p.pending = map[string]pendingCancel{}, make(chan struct{}, 1)
	}
	before, known := p.pendingCancels[id]
	if known && before.from.Before(what.from) {
		what.from = before.from
	}
	if known || len(p.pendingCancels) < mostPending {
		p.pendingCancels[id] = what
		p.pendingChanged()
	}
	first := !p.cancelling
	p.cancelling = true
	return first
}

// cancelFrom sets when a pending cancellation is due.
func (p *endpoint) cancelFrom(id string, from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what, known := p.pendingCancels[id]; known {
		what.from = from
		p.pendingCancels[id] = what
		p.pendingChanged()
	}
}

// waitPending waits until due, or until the pending cancellations change.
func (p *endpoint) waitPending(ctx context.Context, due time.Time) {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.pending:
	case <-ctx.Done():
	}
}

// pendingChanged ends waitPending.
func (p *endpoint) pendingChanged() {
	select {
	case p.pending <- struct{}{}:
	default:
	}
}

// takePending removes and returns some of the pending cancellations that are due, or of all, so many at most. left
// reports whether there were any. If not, the goroutine that sends them ends. If none is due, due is when one will be.
func (p *endpoint) takePending(most int, all bool) (some map[string]pendingCancel, left bool, due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	some = map[string]pendingCancel{}
	now := time.Now()
	for id, what := range p.pendingCancels {
		switch {
		case len(some) == most:
		case !now.Before(what.until):
			delete(p.pendingCancels, id)
		case all || !what.from.After(now):
			delete(p.pendingCancels, id)
			some[id] = what
		case due.IsZero() || what.from.Before(due):
			due = what.from
		}
	}
	p.cancelling = len(some)+len(p.pendingCancels) > 0
	return some, p.cancelling, due
}

// cancelPending sends all pending cancellations: the session m may not know these requests any more. It
// stops when the server takes none of very many: the requests then expire.
func (p *endpoint) cancelPending(ctx context.Context, m member) {
	for failed := 0; failed < 3 && ctx.Err() == nil; {
		pending, _, _ := p.takePending(flushAtOnce, true)
		if len(pending) == 0 {
			return
		}
		var some atomic.Bool
		var all sync.WaitGroup
		for id, what := range pending {
			all.Go(func() {
				const repeats = 2 // the first try may find that its connection was lost
				for try := 0; undelivered(m.Cancel(ctx, what.name, id)); try++ {
					if try == repeats || !backoff.Sleep(ctx, grace) {
						return
					}
				}
				some.Store(true)
			})
		}
		all.Wait()
		if failed++; some.Load() {
			failed = 0
		}
	}
}

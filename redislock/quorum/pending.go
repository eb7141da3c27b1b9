package quorum

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// pendingCancel is a request that has ended; the server may not know that.
type pendingCancel struct {
	name  string
	until time.Time // when it expires there
}

const (
	mostPending = 8192 // cancellations kept for a silent server; the others expire there
	flushAtOnce = 64
)

// cancelOne cancels a request at one server. The session repeats that until the server has received it.
func (s *session) cancelOne(p *endpoint, name, id string, done func(error)) {
	s.cancelUntil(p, id, pendingCancel{name, s.expiry()}, done)
}

// cancelUntil is cancelOne for a cancellation that is pointless after some time.
func (s *session) cancelUntil(p *endpoint, id string, what pendingCancel, done func(error)) {
	s.at(p, func(ctx context.Context, m member) error { return m.Cancel(ctx, what.name, id) }, func(err error) {
		if undelivered(err) || errors.Is(err, driver.ErrClosed) { // Close sends what is pending
			s.pend(p, id, what)
		}
		done(err)
	})
}

// cancelLater cancels a request at one server after a moment, in which an exchange with it has just failed.
func (s *session) cancelLater(p *endpoint, name, id string) {
	s.pend(p, id, pendingCancel{name, s.expiry()})
}

// expiry returns when everything that a request has now at a server has expired there.
func (s *session) expiry() time.Time { return time.Now().Add(2 * s.ttl) }

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
			pending := p.takePending(most)
			var sent sync.WaitGroup
			var failed atomic.Int32
			for id, what := range pending {
				sent.Add(1)
				s.cancelUntil(p, id, what, func(err error) {
					if undelivered(err) {
						failed.Add(1)
					}
					sent.Done()
				})
			}
			s.bg.Done()
			p.busy.Done() // Close waits until all that is left is pending again
			if len(pending) == 0 {
				return
			}
			sent.Wait()
			if some = int(failed.Load()) < len(pending); some {
				pause.Reset()
			}
		}
	}
}

// addPending records that the server must still receive a cancellation. It reports whether the caller must see to
// that: no goroutine does yet.
func (p *endpoint) addPending(id string, what pendingCancel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pendingCancels == nil {
		p.pendingCancels = map[string]pendingCancel{}
	}
	if len(p.pendingCancels) < mostPending {
		p.pendingCancels[id] = what
	}
	first := !p.cancelling
	p.cancelling = true
	return first
}

// takePending removes and returns some of the pending cancellations, so many at most. If there are none, the
// goroutine that sends them ends.
func (p *endpoint) takePending(most int) map[string]pendingCancel {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := map[string]pendingCancel{}
	now := time.Now()
	for id, what := range p.pendingCancels {
		if len(some) == most {
			break
		}
		delete(p.pendingCancels, id)
		if now.Before(what.until) {
			some[id] = what
		}
	}
	p.cancelling = len(some) > 0
	return some
}

// cancelPending sends all pending cancellations: the session m may not know these requests any more. It
// stops when the server takes none of very many: the requests then expire.
func (p *endpoint) cancelPending(ctx context.Context, m member) {
	for failed := 0; failed < 3 && ctx.Err() == nil; {
		pending := p.takePending(flushAtOnce)
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

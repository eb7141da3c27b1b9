package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// minimum returns what is left of the minimum hold, for a server that is asked now. A request that
// does not wait has none until a majority has granted it: see setMinimum.
func (r *request) minimum(now time.Duration) time.Duration {
	switch {
	case r.from == 0 && !r.driver.Wait:
		return 0
	case r.from == 0:
		return r.driver.MinHold
	}
	return max(r.driver.MinHold-(now-r.from), 0)
}

// keepsAtLeast records that a server has so much left of the minimum hold of a grant that was adopted.
func (r *request) keepsAtLeast(left, now time.Duration) {
	if left > r.minimum(now) {
		r.driver.MinHold, r.from = left, now
	}
}

// setMinimum tells the servers the minimum hold of a request that a majority has granted. It returns when a majority
// has recorded that, before the caller hears of the grant. In the questions before, a minimum hold would outlive a
// grant at too few servers: nobody had the lock then, and a server would keep its name.
func (s *session) setMinimum(ctx context.Context, r *request) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
	}
	var errs []error // with r.mu
	answered := make(chan struct{}, 1)
	over := time.After(decisive)
	for pause := (backoff.Pause{First: grace / 10, Most: grace}); ; {
		r.mu.Lock()
		for i, p := range s.endpoints {
			if !r.lacksMinimum(i, s.clock.now()) {
				continue
			}
			s.setMinimumAt(r, p, func(err error) {
				if err != nil {
					errs = append(errs, err)
				}
				select {
				case answered <- struct{}{}:
				default:
				}
			})
		}
		r.mu.Unlock()
		next := time.After(pause.Next())
		for again := false; !again; {
			r.mu.Lock()
			done := r.minimums() >= r.need || r.minimum(s.clock.now()) == 0 // it may be short
			ended, failures := r.over, slices.Clone(errs)
			r.mu.Unlock()
			switch {
			case ended && s.isClosed():
				return driver.ErrClosed
			case ended:
				return driver.Spent(errCancelled)
			case done:
				return nil
			}
			select {
			case <-answered:
			case <-next:
				again = true
			case <-over:
				if len(failures) == 0 {
					failures = append(failures, fmt.Errorf("the others have not answered for %v", decisive))
				}
				return &failure{driver.ErrUncertain, "too few servers have recorded the minimum hold", failures}
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", driver.ErrUncertain, ctx.Err())
			}
		}
	}
}

// minimums returns how many servers with the grant have recorded its minimum hold.
func (r *request) minimums() (n int) {
	for i := range r.votes {
		if v := &r.votes[i]; v.state == granted && v.minimum {
			n++
		}
	}
	return n
}

// tellAgain is how long a server that is told a minimum hold may take to answer. After that it is told again.
const tellAgain = 4 * grace

// lacksMinimum reports whether server i has granted the request, may not know its minimum hold, and is to be told now.
func (r *request) lacksMinimum(i int, now time.Duration) bool {
	v := &r.votes[i]
	return v.state == granted && !v.minimum && !r.driver.Wait && r.minimum(now) > 0 &&
		(v.told == 0 || now-v.told >= tellAgain)
}

// setMinimumAt tells one server, in the background, and calls done with r.mu held. The message may be late, and the
// server may have granted the request anew since, to a question that was late too. That grant has a larger token. The
// caller holds r.mu.
func (s *session) setMinimumAt(r *request, p *endpoint, done func(error)) {
	vote := &r.votes[p.index]
	vote.told = max(s.clock.now(), 1)
	own, upTo := driver.Hold{Name: r.driver.Name, ID: r.driver.ID, Token: vote.token}, max(vote.token, r.token)
	from, begun := r.from, vote.begun
	left := r.minimum(s.clock.now())
	s.background(func() {
		s.at(p, func(ctx context.Context, m member) error { return m.Keep(ctx, own, upTo, left) }, func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.from == from && vote.begun == begun {
				vote.told, vote.minimum = 0, vote.minimum || err == nil
			}
			done(err)
		})
	})
}

// begins records that the server has granted the request. If it had not, as far as was known, or not any more, it
// has to be told the minimum hold.
func (s *vote) begins() {
	if s.state != granted {
		s.lacksAgain()
	}
}

// lacksAgain records that the grant, as far as is known, is one that has not been told the minimum hold.
func (s *vote) lacksAgain() { s.minimum, s.told, s.begun = false, 0, s.begun+1 }

package quorum

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// keeping is about a name that a server shall keep: it has not granted the request, or has missed its release.
type keeping struct {
	r         *request
	until     time.Duration // the name is kept until then, or until the minimum hold is over
	end       time.Duration // when the session tries no more to reach the server
	sure      bool          // the release was successful
	token     uint64        // of the grant, as a majority agreed
	propose   uint64        // for the next grant, or for one that is made to be kept
	surpassed uint64        // as of session.surpassed
	pause     backoff.Pause
}

// left returns for how long the name is still kept.
func (k *keeping) left(now time.Duration) time.Duration { return max(k.until-now, 0) }

// keepAt takes a server that has not granted the request, as far as is known, or has not received its
// release, and keeps the name there as well. Nothing renews a kept name after the release, so it must not
// depend on a bare majority, of which one may fail. If another request has the server, and a majority keeps the
// name, that request is asked to give way. A server that has not kept the name yet is asked again.
func (s *session) keepAt(k *keeping, p *endpoint) {
	now := s.clock.now()
	k.r.mu.Lock()
	req := k.r.driver
	req.Wait, req.MinHold = k.sure, k.r.minimum(now)
	k.r.mu.Unlock()
	if k.left(now) == 0 && req.MinHold == 0 {
		s.keptAt(req.ID, p.index)
		s.cancelOne(p, req.Name, req.ID, func(error) {})
		return
	}
	again := false // the server has answered, and does not keep the name
	s.at(p, func(ctx context.Context, m member) error {
		reply, _, err := m.Ask(ctx, &req, k.propose)
		switch holder := reply.Holder; {
		case err != nil:
			return err
		case reply.Token != 0:
			h := driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}
			err := s.pass(ctx, k, m, h, 0)
			again = driver.IsOver(err) // a cancellation came in between
			return err
		case holder != nil && holder.Kept && holder.ID == req.ID: // an earlier try has done it
			return m.Cancel(ctx, req.Name, req.ID)
		case k.left(s.clock.now()) == 0:
			return m.Cancel(ctx, req.Name, req.ID)
		}
		again = true
		if !k.sure { // then it must not ask others to give way
			return m.Cancel(ctx, req.Name, req.ID)
		}
		return m.Claim(ctx, req.Name, req.ID, 0, k.surpassed)
	}, func(err error) {
		switch {
		case !again && !undelivered(err):
			s.keptAt(req.ID, p.index)
			s.endStray(k.r, p)
		case s.later(k, p, func() { s.keepAt(k, p) }):
		case again:
			s.cancelOne(p, req.Name, req.ID, func(error) {})
		default:
			s.cancelLater(p, req.Name, req.ID)
		}
	})
}

// pass releases a grant at one server, and keeps the name for what is left, and at least for keep. The server may
// have granted the request before a majority agreed on a token. Then the grant gets that token first: a claim by an
// older request spares a name that is kept under a larger token than the claim's.
func (s *session) pass(ctx context.Context, k *keeping, m member, own driver.Hold, keep time.Duration) error {
	if own.Token < k.token && max(keep, k.left(s.clock.now())) > 0 {
		if token, _, err := m.Raise(ctx, own, k.token, 0); err == nil {
			own.Token = token
		}
	}
	return m.Pass(ctx, own, max(keep, k.left(s.clock.now())), k.propose)
}

// passAgain repeats the release of a grant at a server that has missed it. So the name is free there when the
// minimum hold is over, and not only when the lease is.
func (s *session) passAgain(k *keeping, p *endpoint, h driver.Hold) {
	s.at(p, func(ctx context.Context, m member) error {
		return s.pass(ctx, k, m, h, 0)
	}, func(err error) {
		if undelivered(err) {
			s.later(k, p, func() { s.passAgain(k, p, h) }) // otherwise the grant expires
			return
		}
		s.keptAt(h.ID, p.index)
		s.endStray(k.r, p)
	})
}

// endStray cancels what a late question may have left at a server that has done the release since. It would get the
// lock after the minimum hold, for nobody.
func (s *session) endStray(r *request, p *endpoint) {
	r.mu.Lock()
	vote := &r.votes[p.index]
	stray := vote.stray
	vote.stray = false
	r.mu.Unlock()
	if stray {
		s.cancelOne(p, r.driver.Name, r.driver.ID, func(error) {})
	}
}

// later calls f after a pause, in the background. It returns false after Close, if it is too late, or if too many
// wait for p.
func (s *session) later(k *keeping, p *endpoint, f func()) bool {
	if s.clock.now() >= k.end || s.begin(nil) != nil {
		return false
	}
	if !p.tries() {
		s.bg.Done()
		return false
	}
	go func() {
		defer s.bg.Done()
		again := backoff.Sleep(s.life, min(k.pause.Next(), max(k.left(s.clock.now()), redial)))
		p.keeps.Add(-1)
		if again {
			f()
		}
	}()
	return true
}

// keptName is a request whose release keeps the name.
type keptName struct {
	until    time.Time // when the name is not kept any more, or the grant has expired at every server
	end      time.Time // when the name is not kept any more
	released bool      // the release was successful
	done     []bool    // which servers have done it, or have nothing to keep
	tokens   []uint64  // of the grant at each server; 0: it had none, as far as was known
}

// keepsName begins a release that keeps the name for d. As long as a server has not done it, Cancel spares that
// server. A caller whose first exchange was not answered cancels the request after its release, because
// that exchange may still arrive. But a server that has missed the release has the grant, and with it the
// minimum hold.
func (s *session) keepsName(id string, d time.Duration, votes []vote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keptNames[id] != nil || s.closed {
		return
	}
	if len(s.keptNames) >= mostKeeps {
		maps.DeleteFunc(s.keptNames, func(_ string, k *keptName) bool { return !time.Now().Before(k.until) })
	}
	if len(s.keptNames) < mostKeeps {
		n := len(s.endpoints)
		now := time.Now()
		k := &keptName{
			until: now.Add(min(d+grace, 2*s.ttl)), end: now.Add(d), done: make([]bool, n), tokens: make([]uint64, n),
		}
		for i := range votes {
			if votes[i].state == granted {
				k.tokens[i] = votes[i].token
			}
		}
		s.keptNames[id] = k
	}
}

// tokenAt returns the token that the grant h had at server i when its release began, if that is known.
func (s *session) tokenAt(h driver.Hold, i int) (token uint64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keptNames[h.ID]; k != nil && k.tokens[i] != 0 {
		return k.tokens[i], true
	}
	return h.Token, false
}

// minimumLeft returns for how long a release that has begun keeps the name from now on.
func (s *session) minimumLeft(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keptNames[id]; k != nil {
		return max(time.Until(k.end), 0)
	}
	return 0
}

// keptAt records that server i has done the release, or has nothing to keep the name. It forgets the request
// when all have.
func (s *session) keptAt(id string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keptNames[id]; k != nil {
		if k.done[i] = true; !slices.Contains(k.done, false) {
			delete(s.keptNames, id)
		}
	}
}

// releasedName records how a release that keeps the name has ended. own: this session knew the grant, so
// ErrGone does not say that an earlier try has released it.
func (s *session) releasedName(id string, own bool, keep time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keptNames[id]
	switch {
	case k == nil:
	case err == nil, own && keep == 0 && errors.Is(err, driver.ErrGone): // a minimum hold outlives the lease
		k.released = true
	case !own && driver.IsOver(err) && slices.Contains(k.done, true): // an earlier try has done it there
		k.released = true
	case own && driver.IsOver(err): // a grant that had ended keeps nothing
		delete(s.keptNames, id)
	}
}

// sparesAt reports whether server i has not done the release yet, which keeps the name there.
func (s *session) sparesAt(id string, i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keptNames[id]
	return k != nil && time.Now().Before(k.until) && !k.done[i]
}

// spares returns whether a Cancel of the request spares each server, or nil.
func (s *session) spares(id string) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keptNames[id]
	if k == nil || !time.Now().Before(k.until) {
		return nil
	}
	spare, done := make([]bool, len(k.done)), 0
	for i := range spare {
		if spare[i] = !k.done[i]; k.done[i] {
			done++
		}
	}
	if !k.released && done < s.b.need() {
		return nil
	}
	return spare
}

package quorum

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// keeping is about a name that a server shall keep that has not granted it, or has missed the release.
type keeping struct {
	r       *request
	until   time.Duration // the name is kept until then, or until the minimum hold is over
	end     time.Duration // when the session tries no more to reach the server
	propose uint64
	pause   backoff.Pause
}

// keepAt takes a server that has not granted the request, as far as is known, or has not received its
// release, and keeps the name there as well. Nothing renews a kept name after the release, so it must not
// depend on a bare majority, of which one may fail. A server that does not receive it now, or refuses, is
// asked again.
func (s *session) keepAt(k *keeping, p *endpoint) {
	now := s.clock.now()
	k.r.mu.Lock()
	req := k.r.driver
	req.Wait, req.MinHold = false, k.r.minimum(now)
	k.r.mu.Unlock()
	keep := max(k.until-now, 0)
	if keep == 0 && req.MinHold == 0 {
		s.cancelOne(p, req.Name, req.ID, func(error) {})
		return
	}
	s.at(p, func(ctx context.Context, m member) error {
		reply, _, err := m.Ask(ctx, &req, k.propose)
		switch {
		case err != nil:
			return err
		case reply.Token == 0: // another request has it, and this one may be queued
			return m.Cancel(ctx, req.Name, req.ID)
		}
		return m.Pass(ctx, driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}, keep, 0)
	}, func(err error) {
		switch {
		case !undelivered(err):
		case s.clock.now() < k.end && p.tries() && s.begin(nil) == nil:
			go func() {
				defer s.bg.Done()
				again := k.pause.Wait(s.life)
				p.keeps.Add(-1)
				if again {
					s.keepAt(k, p)
				}
			}()
		default:
			p.addPending(req.ID, pendingCancel{name: req.Name, until: s.expiry(), keeps: true})
		}
	})
}

// spared is a request whose release keeps the name.
type spared struct {
	cancelled bool // a Cancel was put off
}

// spare puts off a Cancel of a request whose release keeps the name for d: until then, or until every grant
// of it has expired. A caller whose first exchange was not answered cancels the request after its release,
// because that exchange may still arrive. A server that has missed the release still has the grant, and with
// it the minimum hold. The late exchange gets nothing before that is over.
func (s *session) spare(name, id string, d time.Duration) {
	k := new(spared)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spared[id] = k
	time.AfterFunc(min(d+askLimit, 2*s.ttl), func() { // an exchange of before may have brought a grant later
		s.mu.Lock()
		last := s.spared[id] == k
		if last {
			delete(s.spared, id)
		}
		cancel := last && k.cancelled
		s.mu.Unlock()
		if cancel {
			s.cancelAll(name, id, func(error) {})
		}
	})
}

// spares reports whether a Cancel of the request is put off, and notes it.
func (s *session) spares(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.spared[id]
	if k != nil {
		k.cancelled = true
	}
	return k != nil
}

// spareNoMore is for a release that found the grant ended, and keeps nothing.
func (s *session) spareNoMore(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.spared, id)
}

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
			p.addPending(req.Name, req.ID, s.expiry())
		}
	})
}

package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Adopt goes to every server that has granted h. Only the server knows its token for h.
func (s *session) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := driver.CheckID(id); err != nil {
		return err
	}
	if h.Token == 0 {
		return driver.ErrGone
	}
	if err := s.checkToken(ctx, h, id); err != nil {
		return err
	}
	r, err := s.register(&driver.Request{ID: id, Name: h.Name, Mode: driver.Exclusive, N: 1, Info: info}, h)
	if err != nil {
		return err
	}
	if r.adopted != h {
		return fmt.Errorf("%w id: it belongs to another request of %q", driver.ErrInvalid, h.Name)
	}
	t := s.term(s.stamp.Add(1), 0)
	answers := make(chan error, len(s.endpoints))
	r.mu.Lock()
	for i := range r.votes {
		r.votes[i].sent = t.stamp // a server without an answer may have done it
	}
	r.mu.Unlock()
	for _, p := range s.endpoints {
		var own driver.Holder
		var minimum time.Duration
		s.at(p, func(ctx context.Context, m member) (err error) {
			own, minimum, err = s.adoptAt(ctx, p, m, h, id, info)
			return err
		}, func(err error) {
			r.mu.Lock()
			switch {
			case err == nil:
				r.keepsAtLeast(minimum, s.clock.now())
				r.granted(p.index, t, own.Token)
				r.votes[p.index].writer = own.Mode == driver.Exclusive
				if own.Mode == driver.Shared { // the others do not know the downgrade
					r.driver.Mode = driver.Shared
				}
			case driver.IsOver(err):
				r.gone(p.index, t.stamp)
			}
			r.mu.Unlock()
			answers <- err
		})
	}
	err = s.sum(ctx, answers, len(s.endpoints), 0, false)
	r.mu.Lock()
	mine := r.common() != 0
	if err == nil && mine {
		r.since = t
		r.holds(h.Token, t, s.clock.now()) // a server that is asked for a place now would refuse the adoption
	}
	r.mu.Unlock()
	if err != nil && !mine && (driver.IsOver(err) || driver.IsFinal(err)) {
		s.cancelEverywhere(r)
	}
	return err
}

// failedToAdopt reports whether the request was made from another grant, and no majority has adopted that.
func (r *request) failedToAdopt() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.adopted.Token != 0 && r.token == 0
}

// checkToken refuses a grant with a wrong token, for instance of an edited ticket. A majority
// agreed on the token, so a server of any other majority knows it. The grant may already be adopted
// as id.
func (s *session) checkToken(ctx context.Context, h driver.Hold, id string) error {
	records, _, err := query(ctx, s.b, func(ctx context.Context, m *redislock.Member) (driver.Record, error) {
		return m.Inspect(ctx, h.Name)
	})
	if err != nil {
		return err
	}
	return judgeToken(records, h, id)
}

// judgeToken is checkToken for the records of a majority. After the grant has ended, a server that
// missed that may still show it, with a token of its own. Then the name may be another's already.
func judgeToken(records []driver.Record, h driver.Hold, id string) error {
	found, taken := false, false
	for _, r := range records {
		for _, x := range r.Holders {
			same := x.ID == h.ID || x.ID == id
			switch {
			case x.Kept:
			case same && x.Token == h.Token:
				return nil
			case same:
				found = true
			default:
				taken = taken || x.Token > h.Token
			}
		}
	}
	switch {
	case found && taken:
		return driver.ErrTaken
	case found:
		return driver.ErrGone
	}
	return nil // adoptAt finds out what has become of it
}

// adoptAt adopts h at one server. It returns the grant there, and what is left of its minimum hold.
func (s *session) adoptAt(ctx context.Context, p *endpoint, m member, h driver.Hold, id, info string) (
	own driver.Holder, minimum time.Duration, err error) {
	b, err := p.get(ctx)
	if err != nil {
		return own, 0, err
	}
	record, err := b.Inspect(ctx, h.Name)
	if err != nil {
		return own, 0, err
	}
	own = driver.Holder{Token: h.Token, Mode: driver.Exclusive}
	for _, x := range record.Holders {
		if (x.ID == h.ID || x.ID == id) && !x.Kept {
			own = x
		}
	}
	minimum, err = m.AdoptMinimum(ctx, driver.Hold{Name: h.Name, ID: h.ID, Token: own.Token}, id, info)
	return own, minimum, err
}

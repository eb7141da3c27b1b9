package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func (s *session) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	_, err := s.adopt(ctx, h, id, info)
	return err
}

// adopt is Adopt. It returns what is left of the minimum hold.
func (s *session) adopt(ctx context.Context, h driver.Hold, id, info string) (minimum time.Duration, err error) {
	if err := driver.CheckID(id); err != nil {
		return 0, err
	}
	if h.Token > maxToken || h.Token == 0 {
		return 0, driver.ErrGone
	}
	fresh, err := s.adopts(id, h)
	if err != nil {
		return 0, err
	}
	defer s.flights.Done()
	c := s.b.keys(h.Name, "lzmt").str("adopt").end().str(h.ID).end().padded(h.Token, 16).end().
		micros(s.ttl).end().str(s.id).end().str(id).end().str(info).end()
	v, err := s.b.sure(ctx, s.patience, s.b.scripts.change, c, requester{s, h.Name, id})
	if _, failed := lacking(err); failed == nil && v.Kind == Int && v.Int == 3 {
		err = fmt.Errorf("%w id: it belongs to another request of %q", driver.ErrInvalid, h.Name)
	} else {
		err = verdict(v, err)
	}
	if err != nil {
		if fresh && !errors.Is(err, driver.ErrUncertain) && (driver.IsFinal(err) || driver.IsOver(err)) {
			s.unregister(id)
		}
		return 0, err // the outcome is open: Close gives the grant back
	}
	s.regroup(id)
	if !s.holds(id, h.Token, 0) { // cancelled meanwhile, perhaps before the store received the request
		if err := s.ensureCancelled(ctx, h.Name, id); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%w: the request was cancelled while it was granted", driver.ErrUncertain)
	}
	return micros(max(-v.Int, 0)), nil
}

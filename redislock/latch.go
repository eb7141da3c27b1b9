package redislock

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
)

// maxCount is the largest count of a latch: Lua's numbers are exact up to it.
const maxCount = 1 << 52

func (s *session) SetCount(ctx context.Context, name string, n int64) (bool, error) {
	if n < 0 || n > maxCount {
		return false, fmt.Errorf("%w count %d: allowed are 0 to %d", driver.ErrInvalid, n, int64(maxCount))
	}
	if err := s.b.checkFormat(name, driver.Latch); err != nil {
		return false, err
	}
	c := s.latch(name, "set").padded(uint64(n), 16).end()
	v, err := s.latchRun(ctx, c, requester{})
	return v == 1 && err == nil, err
}

func (s *session) CountDown(ctx context.Context, name, id string) (int64, error) {
	if err := s.b.checkFormat(name, driver.Latch); err != nil {
		return 0, err
	}
	return s.latchRun(ctx, s.latch(name, "down").str(id).end(), requester{})
}

func (s *session) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if err := s.b.checkFormat(name, driver.Latch); err != nil {
		return driver.Reply{}, err
	}
	_, again, err := s.register(id, request{name: name, group: true}, 0)
	if err != nil {
		return driver.Reply{}, err
	}
	defer s.flights.Done()
	session, err := s.listening(ctx, name, true)
	if err == nil {
		err = s.hear(ctx, name, id, 0, false)
	}
	if err != nil {
		return driver.Reply{}, s.refused(requester{s, name, id}, again, err)
	}
	v, err := s.latchRun(ctx, s.latch(name, "await").str(id).end().str(session).end().micros(s.ttl).end(),
		requester{s, name, id})
	if short, other := lacking(err); short != nil && v == 0 {
		err = other // not yet: no caller relies on that
	}
	switch {
	case err != nil:
		if driver.IsOver(err) {
			s.unregister(id)
		}
		return driver.Reply{}, s.refused(requester{s, name, id}, again, err)
	case v == 1:
		s.unregister(id)
		return driver.Reply{Token: 1}, nil
	}
	wake, ok := s.waits(id, 0)
	if !ok {
		return driver.Reply{}, s.ensureCancelled(ctx, name, id)
	}
	return driver.Reply{Wake: wake}, nil
}

func (s *session) latch(name, what string) *call {
	return s.b.keys(name, "lzmti").str(what).end()
}

func (s *session) latchRun(ctx context.Context, c *call, of requester) (int64, error) {
	if err := s.open(); err != nil {
		c.free()
		return 0, err
	}
	v, err := s.b.sure(ctx, s.patience, s.b.scripts.latch, c, of)
	short, err := lacking(err)
	switch {
	case err != nil:
		return 0, err
	case v.Kind == Text:
		return 0, fmt.Errorf("%w: %s", driver.ErrKind, v.Text)
	case v.Kind != Int:
		return 0, strange(v)
	case v.Int < 0:
		return 0, driver.ErrGone
	case short != nil:
		return v.Int, short
	}
	return v.Int, nil
}

func (s *session) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	return nil
}

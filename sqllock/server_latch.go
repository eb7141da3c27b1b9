package sqllock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
)

func (s *serverSession) SetCount(ctx context.Context, name string, n int64) (created bool, err error) {
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return false, err
	}
	if n < 0 {
		return false, fmt.Errorf("%w count %d: it must not be negative", driver.ErrInvalid, n)
	}
	var d doubt
	err = s.b.with(ctx, name, func(ctx context.Context) error {
		return s.b.change(ctx, d.of(s.b.run), one(name, func(r *record) (err error) {
			created, r.grants, err = r.entry.SetCount(ofMicros(r.now), n)
			return err
		}))
	})
	return d.made(created, err)
}

func (s *serverSession) CountDown(ctx context.Context, name, id string) (left int64, err error) {
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return 0, err
	}
	if id, err = countID(id); err != nil {
		return 0, err
	}
	err = s.b.with(ctx, name, func(ctx context.Context) error {
		return s.b.change(ctx, s.b.run, step{names: []string{name}, counts: id, do: func(_ int, r *record) (err error) {
			left, r.grants, err = r.entry.CountDown(ofMicros(r.now), id)
			return err
		}})
	})
	return left, err
}

// countID returns the form in which the table keeps an ID that counts down: the ID itself if it has
// the form of a request ID, otherwise a digest. So any text as long as a name may be is allowed.
func countID(id string) (string, error) {
	switch {
	case driver.CheckID(id) == nil:
		return id, nil
	case id == "" || len(id) > driver.MaxName:
		return "", fmt.Errorf("%w id: it has %d bytes; allowed are 1 to %d", driver.ErrInvalid, len(id), driver.MaxName)
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("x-%x", sum[:22]), nil
}

func (s *serverSession) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if err := errors.Join(s.usable(), driver.CheckName(name), driver.CheckID(id)); err != nil {
		return driver.Reply{}, err
	}
	w := s.b.waiters.Begin(id, name, waitLatch)
	if _, err := s.register(id, request{name: name, group: true}); err != nil {
		return driver.Reply{}, err
	}
	var open bool
	err := s.change(ctx, name, func(r *record) (err error) {
		if s.b.waiters.Cancelled(w) {
			return errCancelled
		}
		open, r.grants, err = r.entry.AskLatch(ofMicros(r.now), id, s.id)
		return err
	})
	if err != nil || open {
		s.b.waiters.End(id, w)
		s.unregister(id)
		if err != nil {
			return driver.Reply{}, err
		}
		return driver.Reply{Token: 1}, nil
	}
	wake := s.b.waiters.Park(w, 0)
	s.b.expect()
	// No expiring lease makes the waiter ask again after a lost wake-up, so Retry does.
	return driver.Reply{Wake: wake, Retry: s.ttl / 3}, nil
}

package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/driver"
)

func (t *tx) setCount(name string, n int64) (bool, error) {
	r, err := t.row(name)
	if err != nil {
		return false, err
	}
	switch r.kind {
	case driver.Unused:
		r.kind, r.count, r.dirty = driver.Latch, n, true
		return true, nil
	case driver.Latch:
		return false, nil
	default:
		return false, wrongKind(r)
	}
}

func (t *tx) latch(name string) (*row, error) {
	r, err := t.row(name)
	if err != nil {
		return nil, err
	}
	if r.kind != driver.Latch {
		return nil, fmt.Errorf("latch: %w", driver.ErrGone)
	}
	return r, nil
}

func (t *tx) countDown(name, id string) (int64, error) {
	r, err := t.latch(name)
	if err != nil || r.count == 0 {
		return 0, err
	}
	n, err := t.c.exec(qCounted, []byte(name), id)
	if err != nil || n == 0 {
		return r.count, err
	}
	r.count, r.dirty = r.count-1, true
	if r.count > 0 {
		return r.count, nil
	}
	// At zero further counts do nothing, so the IDs are not needed any more.
	if _, err := t.c.exec(qForgetCounted, []byte(name)); err != nil {
		return 0, err
	}
	return 0, t.notifyAwaiting(name, 1)
}

// notifyAwaiting notifies all that await the latch, and removes them.
func (t *tx) notifyAwaiting(name string, token uint64) error {
	err := t.c.each(qAwaiting, []any{[]byte(name)}, func(scan func(...any) error) error {
		g := notification{token: token}
		err := scan(&g.id, &g.session)
		t.notifications = append(t.notifications, g)
		return err
	})
	if err != nil {
		return err
	}
	_, err = t.c.exec(qDropAwait, []byte(name))
	return err
}

// dropLatch is Break of a latch.
func (t *tx) dropLatch(r *row) error {
	r.kind, r.count, r.dirty = driver.Unused, 0, true
	if _, err := t.c.exec(qForgetCounted, []byte(r.name)); err != nil {
		return err
	}
	return t.notifyAwaiting(r.name, 0)
}

func (t *tx) await(s *session, name, id string) (open bool, err error) {
	r, err := t.latch(name)
	if err != nil || r.count == 0 {
		return err == nil, err
	}
	_, err = t.c.exec(qAwait, []byte(name), id, s.id)
	return false, err
}

func (s *session) SetCount(ctx context.Context, name string, n int64) (created bool, err error) {
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return false, err
	}
	if n < 0 {
		return false, fmt.Errorf("%w count %d: it must not be negative", driver.ErrInvalid, n)
	}
	err = s.st.write(ctx, func(t *tx) (err error) {
		created, err = t.setCount(name, n)
		return err
	})
	return created && err == nil, err
}

func (s *session) CountDown(ctx context.Context, name, id string) (left int64, err error) {
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return 0, err
	}
	err = s.st.write(ctx, func(t *tx) (err error) {
		left, err = t.countDown(name, id)
		return err
	})
	return left, err
}

func (s *session) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return driver.Reply{}, err
	}
	w := s.waiters.Begin(id, name, 0)
	var open bool
	err := s.st.write(ctx, func(t *tx) error {
		if s.waiters.Cancelled(w) {
			return errCancelled
		}
		err := s.stands(t)
		if err == nil {
			open, err = t.await(s, name, id)
		}
		return err
	})
	if err != nil || open {
		s.waiters.End(id, w)
		if err != nil {
			return driver.Reply{}, err
		}
		return driver.Reply{Token: 1}, nil
	}
	// No expiring lease makes the waiter ask again after a lost wake-up, so Retry does.
	return driver.Reply{Wake: s.waiters.Park(w, 0), Retry: pollAtLeast(s.ttl / 3)}, nil
}

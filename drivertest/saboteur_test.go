package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// sabotagedSession is a session with methods that can be replaced.
type sabotagedSession struct {
	driver.Session
	acquire func(ctx context.Context, r *driver.Request) (driver.Reply, error)
	cancel  func(ctx context.Context, name, id string) error
	release func(ctx context.Context, h driver.Hold, keep time.Duration) error
	renew   func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error)
	count   func(ctx context.Context, name, id string) (int64, error)
	down    func(ctx context.Context, h driver.Hold) error
	reduce  func(ctx context.Context, h driver.Hold, n int) error
	adopt   func(ctx context.Context, h driver.Hold, id, info string) error
	close   func(ctx context.Context) error
}

func (s *sabotagedSession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if s.acquire != nil {
		return s.acquire(ctx, r)
	}
	return s.Session.Acquire(ctx, r)
}

func (s *sabotagedSession) Cancel(ctx context.Context, name, id string) error {
	if s.cancel != nil {
		return s.cancel(ctx, name, id)
	}
	return s.Session.Cancel(ctx, name, id)
}

func (s *sabotagedSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if s.release != nil {
		return s.release(ctx, h, keep)
	}
	return s.Session.Release(ctx, h, keep)
}

func (s *sabotagedSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if s.renew != nil {
		return s.renew(ctx, holds)
	}
	return s.Session.Renew(ctx, holds)
}

func (s *sabotagedSession) CountDown(ctx context.Context, name, id string) (int64, error) {
	if s.count != nil {
		return s.count(ctx, name, id)
	}
	return s.Session.CountDown(ctx, name, id)
}

func (s *sabotagedSession) Downgrade(ctx context.Context, h driver.Hold) error {
	if s.down != nil {
		return s.down(ctx, h)
	}
	return s.Session.Downgrade(ctx, h)
}

func (s *sabotagedSession) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if s.reduce != nil {
		return s.reduce(ctx, h, n)
	}
	return s.Session.Reduce(ctx, h, n)
}

func (s *sabotagedSession) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if s.adopt != nil {
		return s.adopt(ctx, h, id, info)
	}
	return s.Session.Adopt(ctx, h, id, info)
}

func (s *sabotagedSession) Close(ctx context.Context) error {
	if s.close != nil {
		return s.close(ctx)
	}
	return s.Session.Close(ctx)
}

package drivertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Refusing puts a switch in front of a store that cannot refuse writes itself. After refuse, every
// write ends with ErrRefused before the store receives it, until heal. Reads pass, and so does the
// opening of a session.
func Refusing(b driver.Backend) (gated driver.Backend, refuse func() (heal func())) {
	g := &writeSwitch{Backend: b}
	return g, func() func() {
		g.setRefusing(true)
		return func() { g.setRefusing(false) }
	}
}

type writeSwitch struct {
	driver.Backend
	mu      sync.RWMutex
	refuses bool
}

func (g *writeSwitch) setRefusing(refuses bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuses = refuses
}

// write makes a call unless writes are refused now.
func (g *writeSwitch) write(call func() error) error {
	g.mu.RLock() // so that no write is under way once refuse has returned
	defer g.mu.RUnlock()
	if g.refuses {
		return fmt.Errorf("%w: it accepts no writes now", driver.ErrRefused)
	}
	return call()
}

func (g *writeSwitch) Watch(ctx context.Context, prefix string, changed func(string)) error {
	return driver.Watch(ctx, g.Backend, prefix, changed)
}

func (g *writeSwitch) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := g.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &gatedSession{s, g}, nil
}

func (g *writeSwitch) Break(ctx context.Context, name string, token uint64) error {
	return g.write(func() error { return g.Backend.Break(ctx, name, token) })
}

func (g *writeSwitch) RemoveLatch(ctx context.Context, name string) error {
	return g.write(func() error { return g.Backend.RemoveLatch(ctx, name) })
}

func (g *writeSwitch) SetLimit(ctx context.Context, name string, limit int) error {
	return g.write(func() error { return g.Backend.SetLimit(ctx, name, limit) })
}

func (g *writeSwitch) AddHistory(ctx context.Context, name, text string, keep int) error {
	return g.write(func() error { return g.Backend.AddHistory(ctx, name, text, keep) })
}

type gatedSession struct {
	driver.Session
	g *writeSwitch
}

func (s *gatedSession) Acquire(ctx context.Context, r *driver.Request) (reply driver.Reply, err error) {
	err = s.g.write(func() (err error) { reply, err = s.Session.Acquire(ctx, r); return err })
	return reply, err
}

func (s *gatedSession) Cancel(ctx context.Context, name, id string) error {
	return s.g.write(func() error { return s.Session.Cancel(ctx, name, id) })
}

func (s *gatedSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	return s.g.write(func() error { return s.Session.Release(ctx, h, keep) })
}

func (s *gatedSession) Renew(ctx context.Context, holds []driver.Hold) (ch []driver.Change, err error) {
	err = s.g.write(func() (err error) { ch, err = s.Session.Renew(ctx, holds); return err })
	return ch, err
}

func (s *gatedSession) Downgrade(ctx context.Context, h driver.Hold) error {
	return s.g.write(func() error { return s.Session.Downgrade(ctx, h) })
}

func (s *gatedSession) Reduce(ctx context.Context, h driver.Hold, n int) error {
	return s.g.write(func() error { return s.Session.Reduce(ctx, h, n) })
}

func (s *gatedSession) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	return s.g.write(func() error { return s.Session.Adopt(ctx, h, id, info) })
}

func (s *gatedSession) SetCount(ctx context.Context, name string, n int64) (ok bool, err error) {
	err = s.g.write(func() (err error) { ok, err = s.Session.SetCount(ctx, name, n); return err })
	return ok, err
}

func (s *gatedSession) CountDown(ctx context.Context, name, id string) (left int64, err error) {
	err = s.g.write(func() (err error) { left, err = s.Session.CountDown(ctx, name, id); return err })
	return left, err
}

func (s *gatedSession) Await(ctx context.Context, name, id string) (reply driver.Reply, err error) {
	err = s.g.write(func() (err error) { reply, err = s.Session.Await(ctx, name, id); return err })
	return reply, err
}

func (s *gatedSession) Close(ctx context.Context) error {
	return s.g.write(func() error { return s.Session.Close(ctx) })
}

package drivertest

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
)

// brokenCallBacks are stores with a mistake in their call-backs.
var brokenCallBacks = []broken{
	{name: "nobody is called back", rule: "R22", backend: func(b driver.Backend) driver.Backend {
		return &recaller{Backend: b, wanted: func(func(name, id string)) func(name, id string) { return nil }}
	}},
	{name: "another grant is called back", rule: "R22", backend: func(b driver.Backend) driver.Backend {
		return &recaller{Backend: b, wanted: func(f func(name, id string)) func(name, id string) {
			return func(name, id string) { f(name, "x"+id) }
		}}
	}},
	{name: "called back once for all places", rule: "R22", backend: func(b driver.Backend) driver.Backend {
		return &recaller{Backend: b, wanted: func(f func(name, id string)) func(name, id string) {
			told := map[string]bool{}
			return func(name, id string) { // memlock calls one at a time
				if !told[id] {
					told[id] = true
					f(name, id)
				}
			}
		}}
	}},
	{name: "all grants are called back", rule: "R22", session: func(s driver.Session) driver.Session {
		return &asksForCallBacks{s}
	}},
}

// recaller changes what a session hears of call-backs.
type recaller struct {
	driver.Backend
	wanted func(func(name, id string)) func(name, id string)
}

func (r *recaller) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if cfg.Wanted != nil {
		cfg.Wanted = r.wanted(cfg.Wanted)
	}
	return r.Backend.Open(ctx, cfg)
}

type asksForCallBacks struct{ driver.Session }

func (s *asksForCallBacks) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	asks := *r
	asks.CallBack = r.Mode == driver.Exclusive
	return s.Session.Acquire(ctx, &asks)
}

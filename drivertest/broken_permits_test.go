package drivertest

import (
	"cmp"
	"context"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

var brokenPermits = []broken{
	{name: "a reduction frees nothing", rule: "R18", session: reducing(func(_ context.Context, _ driver.Session,
		_ *driver.Request, _ driver.Hold, n int) error {
		return driver.CheckRemaining(n)
	})},
	{name: "the number is that of permits to give back", rule: "R18", session: reducing(func(ctx context.Context,
		s driver.Session, r *driver.Request, h driver.Hold, n int) error {
		return s.Reduce(ctx, h, max(1, r.N-n))
	})},
	{name: "a reduced grant is a new grant", rule: "R18", session: reducing(func(ctx context.Context,
		s driver.Session, r *driver.Request, h driver.Hold, n int) error {
		if err := cmp.Or(driver.CheckRemaining(n), s.Release(ctx, h, 0)); err != nil {
			return err
		}
		less := *r
		less.N = min(n, r.N)
		_, err := s.Acquire(ctx, &less)
		return err
	})},
	{name: "a reduction within the minimum hold", rule: "R18", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			short := *r
			if r.Mode == driver.Permits {
				short.MinHold = 0
			}
			return s.Acquire(ctx, &short)
		}}
	}},
	{name: "a repeated request gets its permits again", rule: "R18", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if r.Mode == driver.Permits && r.N > 1 && reply.Token != 0 {
				_ = s.Cancel(ctx, r.Name, r.ID)
				return s.Acquire(ctx, r)
			}
			return reply, err
		}}
	}},
}

// reducing makes sessions whose Reduce is replaced. It gets the request of the grant.
func reducing(f func(ctx context.Context, s driver.Session, r *driver.Request, h driver.Hold, n int) error) func(
	driver.Session) driver.Session {
	return func(s driver.Session) driver.Session {
		asked := map[string]*driver.Request{}
		var mu sync.Mutex
		return &sabotagedSession{
			Session: s,
			acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
				mu.Lock()
				asked[r.ID] = r
				mu.Unlock()
				return s.Acquire(ctx, r)
			},
			reduce: func(ctx context.Context, h driver.Hold, n int) error {
				mu.Lock()
				r := asked[h.ID]
				mu.Unlock()
				if r == nil { // an adopted grant
					return s.Reduce(ctx, h, n)
				}
				return f(ctx, s, r, h, n)
			},
		}
	}
}

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

var brokenLimits = []broken{
	{name: "a limit that nobody uses is forgotten", rule: "R19", backend: limiting(func(ctx context.Context,
		b driver.Backend, name string, limit int) error {
		if r, err := b.Inspect(ctx, name); err != nil || r.Kind == driver.Unused {
			return err
		}
		return b.SetLimit(ctx, name, limit)
	})},
	{name: "a limit that is removed stays", rule: "R19", backend: limiting(func(ctx context.Context, b driver.Backend,
		name string, limit int) error {
		if limit == 0 {
			return nil
		}
		return b.SetLimit(ctx, name, limit)
	})},
	{name: "a limit that is set before is kept", rule: "R19", backend: limiting(func(ctx context.Context, b driver.Backend,
		name string, limit int) error {
		if r, err := b.Inspect(ctx, name); err != nil || r.Set && limit > 0 {
			return err
		}
		return b.SetLimit(ctx, name, limit)
	})},
	{name: "any limit in use is taken for the one that is set", rule: "R19", backend: limited(func(ctx context.Context,
		b driver.Backend, r *driver.Request) {
		if rec, err := b.Inspect(ctx, r.Name); err == nil && r.Mode == driver.Permits && r.Limit == 0 {
			r.Limit = rec.Limit
		}
	})},
	{name: "a lock beside a limit that is set", rule: "R19", backend: limited(func(ctx context.Context, b driver.Backend,
		r *driver.Request) {
		if rec, err := b.Inspect(ctx, r.Name); err == nil && r.Mode == driver.Exclusive && len(rec.Holders) == 0 {
			_ = b.SetLimit(ctx, r.Name, 0)
		}
	})},
	{name: "a large request is cut to the limit", rule: "R19", backend: limited(func(ctx context.Context, b driver.Backend,
		r *driver.Request) {
		if rec, err := b.Inspect(ctx, r.Name); err == nil && r.Mode == driver.Permits && r.Limit == 0 && rec.Limit > 0 {
			r.N = min(r.N, rec.Limit)
		}
	})},
}

// limitBackend is a store whose SetLimit, or what its sessions ask for, is replaced.
type limitBackend struct {
	driver.Backend
	set func(ctx context.Context, b driver.Backend, name string, limit int) error
	ask func(ctx context.Context, b driver.Backend, r *driver.Request)
}

func limiting(f func(ctx context.Context, b driver.Backend, name string, limit int) error) func(
	driver.Backend) driver.Backend {
	return func(b driver.Backend) driver.Backend { return &limitBackend{b, f, nil} }
}

func limited(f func(ctx context.Context, b driver.Backend, r *driver.Request)) func(driver.Backend) driver.Backend {
	return func(b driver.Backend) driver.Backend { return &limitBackend{b, nil, f} }
}

func (b *limitBackend) SetLimit(ctx context.Context, name string, limit int) error {
	if b.set != nil {
		return b.set(ctx, b.Backend, name, limit)
	}
	return b.Backend.SetLimit(ctx, name, limit)
}

func (b *limitBackend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	if err != nil || b.ask == nil {
		return s, err
	}
	return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
		other := *r
		b.ask(ctx, b.Backend, &other)
		return s.Acquire(ctx, &other)
	}}, nil
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

package history_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// mistake is the mistake of the store, the client or the resource.
type mistake struct {
	name  string
	class history.Class

	release   func(s driver.Session, b driver.Backend, h driver.Hold) error
	acquire   func(s driver.Session, req *driver.Request, client string) (driver.Reply, error)
	renew     func(s driver.Session, holds []driver.Hold) ([]driver.Change, error)
	open      func(cfg *driver.SessionConfig)
	overClaim bool // the library reports every lease as valid
	unfenced  bool // the resource accepts every token
}

// mistaken is a session in which single methods are wrong.
type mistaken struct {
	driver.Session
	p *proofs
}

func (s *mistaken) TTL() time.Duration { return ttl }

func (s *mistaken) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if f := s.p.r.mistake.acquire; f != nil {
		return f(s.Session, req, s.p.client)
	}
	return s.Session.Acquire(ctx, req)
}

func (s *mistaken) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if f := s.p.r.mistake.release; f != nil {
		return f(s.Session, s.p.Backend, h)
	}
	return s.Session.Release(ctx, h, keep)
}

func (s *mistaken) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if f := s.p.r.mistake.renew; f != nil {
		return f(s.Session, holds)
	}
	return s.Session.Renew(ctx, holds)
}

// mistakes are stores, clients and resources with a mistake each, and the class that must detect
// it.
var mistakes = []mistake{
	{name: "grants during another's lease", class: history.S1,
		acquire: func(s driver.Session, req *driver.Request, _ string) (driver.Reply, error) {
			reply, err := s.Acquire(bg, req)
			if req.Name == "mutex" && reply.Holder != nil {
				reply.Token = reply.Holder.Token + 1
			}
			return reply, err
		}},
	{name: "leases shorter than promised", class: history.S1, open: func(cfg *driver.SessionConfig) { cfg.TTL /= 2 }},
	{name: "release without a check of the owner", class: history.S1,
		release: func(s driver.Session, b driver.Backend, h driver.Hold) error {
			err := s.Release(bg, h, 0)
			if errors.Is(err, driver.ErrTaken) {
				if rec, _ := b.Inspect(bg, h.Name); len(rec.Holders) > 0 {
					_ = b.Break(bg, h.Name, rec.Holders[0].Token)
				}
			}
			return err
		}},
	{name: "a client that trusts its leases for ever", class: history.S2, overClaim: true},
	{name: "a resource without fencing", class: history.S3, unfenced: true},
	{name: "tokens that do not grow", class: history.S4,
		acquire: func(s driver.Session, req *driver.Request, _ string) (driver.Reply, error) {
			reply, err := s.Acquire(bg, req)
			reply.Token = min(reply.Token, 1)
			return reply, err
		}},
	{name: "one permit too many", class: history.S5, acquire: func(s driver.Session, req *driver.Request,
		_ string) (driver.Reply, error) {
		more := *req
		if more.Mode == driver.Permits {
			more.Limit++
		}
		return s.Acquire(bg, &more)
	}},
	{name: "writers at the same time as readers", class: history.S5,
		acquire: func(s driver.Session, req *driver.Request, _ string) (driver.Reply, error) {
			shared := *req
			if shared.Name == "rw" {
				shared.Mode = driver.Shared
			}
			return s.Acquire(bg, &shared)
		}},
	{name: "leases that last too long", class: history.L1, open: func(cfg *driver.SessionConfig) { cfg.TTL *= 6 }},
	{name: "pushes and answers of renewals are lost", class: history.L2,
		acquire: func(s driver.Session, req *driver.Request, _ string) (driver.Reply, error) {
			reply, err := s.Acquire(bg, req)
			reply.Retry = 0
			if reply.Wake != nil {
				reply.Wake = make(chan uint64)
			}
			return reply, err
		}, renew: func(s driver.Session, holds []driver.Hold) ([]driver.Change, error) {
			changes, err := s.Renew(bg, holds)
			return slices.DeleteFunc(changes, func(ch driver.Change) bool { return holds[ch.Index].Token == 0 }), err
		}},
	{name: "one client never gets into the queue", class: history.L3,
		acquire: func(s driver.Session, req *driver.Request, client string) (driver.Reply, error) {
			if client[:2] != "p0" {
				return s.Acquire(bg, req)
			}
			outside := *req
			outside.Wait = false
			reply, err := s.Acquire(bg, &outside)
			reply.Retry = 5 * time.Millisecond
			return reply, err
		}},
	{name: "grants without a request", class: history.L4,
		release: func(s driver.Session, _ driver.Backend, h driver.Hold) error {
			err := s.Release(bg, h, 0)
			_, _ = s.Acquire(bg, &driver.Request{ID: h.ID + "x", Name: "idle", Mode: driver.Shared, N: 1,
				MinHold: 10 * time.Minute})
			return err
		}},
}

var bg = context.Background()

// TestMistakes: recorded histories of wrong systems get a violation of the right class. What happens at
// the same instant is in no fixed order, so one history may not show the mistake.
func TestMistakes(t *testing.T) {
	const seeds = 5
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			var r *history.Report
			for seed := uint64(1); seed <= seeds; seed++ {
				if r = history.Check(record(t, seed, m), history.Options{}); r.Verdict(m.class).Count > 0 {
					break
				}
			}
			if v := r.Verdict(m.class); v.Count == 0 {
				t.Errorf("not caught as %s in %d histories; the last:\n%s", m.class, seeds, r)
			}
			for _, v := range r.Verdicts {
				if v.Count > 0 {
					t.Logf("%d times %s", v.Count, v.Violations[0])
				}
			}
		})
	}
}

package drivertest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// broken is a store with a mistake that people make. Each must be caught, by a check of
// the rule that it breaks.
type broken struct {
	name, rule string
	backend    func(b driver.Backend) driver.Backend
	session    func(s driver.Session) driver.Session
}

// TestBrokenStores shows that the suite can fail.
func TestBrokenStores(t *testing.T) {
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			var caught []string
			for _, topic := range suite {
				for _, c := range topic {
					if c.rule != b.rule && len(caught) > 0 {
						continue // one more is as good
					}
					synctest.Test(t, func(t *testing.T) {
						rec := &recorder{TB: t}
						store := memlock.New()
						h := Harness{TTL: time.Second, Restart: func(testing.TB) {}, Open: func(testing.TB) Conn {
							return Faulty(&sabotaged{store, b})
						}}
						done := make(chan struct{})
						go func() { defer close(done); h.check(rec, c) }()
						<-done
						if rec.Failed() {
							caught = append(caught, c.rule)
							t.Logf("%s/%s: %s", c.rule, c.name, rec.first)
						}
					})
				}
			}
			if !slices.Contains(caught, b.rule) {
				t.Errorf("not caught by a check of %s; caught by %v", b.rule, caught)
			}
		})
	}
}

type sabotaged struct {
	*memlock.Store
	broken
}

func (s *sabotaged) inner() driver.Backend {
	if s.backend != nil {
		return s.backend(s.Store)
	}
	return s.Store
}

func (s *sabotaged) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	n, err := s.inner().Open(ctx, cfg)
	if err == nil && s.session != nil {
		n = s.session(n)
	}
	return n, err
}

func (s *sabotaged) Break(ctx context.Context, name string, token uint64) error {
	return s.inner().Break(ctx, name, token)
}

func (s *sabotaged) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	return s.inner().List(ctx, prefix, after, n)
}

// recorder is a testing.TB whose failures are kept, not reported.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	first  string
}

func (r *recorder) Helper() {}
func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	if r.first == "" {
		r.first = text
	}
}
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
func (r *recorder) Logf(f string, args ...any)   { r.note(false, fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)            { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(true, fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.note(true, fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) {
	r.note(true, fmt.Sprintf(f, args...))
	runtime.Goexit()
}

// saboteur is a session of which single methods can be replaced.
type saboteur struct {
	driver.Session
	acquire func(ctx context.Context, r *driver.Request) (driver.Reply, error)
	cancel  func(ctx context.Context, name, id string) error
	release func(ctx context.Context, h driver.Hold, keep time.Duration) error
	renew   func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error)
	count   func(ctx context.Context, name, id string) (int64, error)
	down    func(ctx context.Context, h driver.Hold) error
	adopt   func(ctx context.Context, h driver.Hold, id, info string) error
	close   func(ctx context.Context) error
}

func (s *saboteur) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if s.acquire != nil {
		return s.acquire(ctx, r)
	}
	return s.Session.Acquire(ctx, r)
}

func (s *saboteur) Cancel(ctx context.Context, name, id string) error {
	if s.cancel != nil {
		return s.cancel(ctx, name, id)
	}
	return s.Session.Cancel(ctx, name, id)
}

func (s *saboteur) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if s.release != nil {
		return s.release(ctx, h, keep)
	}
	return s.Session.Release(ctx, h, keep)
}

func (s *saboteur) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if s.renew != nil {
		return s.renew(ctx, holds)
	}
	return s.Session.Renew(ctx, holds)
}

func (s *saboteur) CountDown(ctx context.Context, name, id string) (int64, error) {
	if s.count != nil {
		return s.count(ctx, name, id)
	}
	return s.Session.CountDown(ctx, name, id)
}

func (s *saboteur) Downgrade(ctx context.Context, h driver.Hold) error {
	if s.down != nil {
		return s.down(ctx, h)
	}
	return s.Session.Downgrade(ctx, h)
}

func (s *saboteur) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if s.adopt != nil {
		return s.adopt(ctx, h, id, info)
	}
	return s.Session.Adopt(ctx, h, id, info)
}

func (s *saboteur) Close(ctx context.Context) error {
	if s.close != nil {
		return s.close(ctx)
	}
	return s.Session.Close(ctx)
}

var brokenStores = []broken{
	{name: "grants beside a holder", rule: "R4", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if reply.Holder != nil {
				reply.Token = reply.Holder.Token + 1
			}
			return reply, err
		}}
	}},
	{name: "acquire is not idempotent", rule: "R5", session: func(s driver.Session) driver.Session {
		n := 0
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			again := *r
			n++
			again.ID += fmt.Sprint("-", n)
			return s.Acquire(ctx, &again)
		}}
	}},
	{name: "release wakes nobody", rule: "R7", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if reply.Wake != nil {
				reply.Wake = make(chan uint64)
			}
			return reply, err
		}}
	}},
	{name: "release without asking who owns it", rule: "R4", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, release: func(ctx context.Context, h driver.Hold, keep time.Duration) error {
			err := s.Release(ctx, h, keep)
			if err == driver.ErrTaken || err == driver.ErrGone {
				changes, _ := s.Renew(ctx, []driver.Hold{{Name: h.Name, ID: h.ID}})
				if len(changes) > 0 && changes[0].State == driver.Granted {
					return s.Release(ctx, driver.Hold{Name: h.Name, ID: h.ID, Token: changes[0].Token}, 0)
				}
			}
			return err
		}}
	}},
	{name: "renew revives what ran out", rule: "R12", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
			changes, err := s.Renew(ctx, holds)
			return slices.DeleteFunc(changes, func(ch driver.Change) bool {
				if ch.State != driver.Gone || holds[ch.Index].Token == 0 {
					return false
				}
				h := holds[ch.Index]
				reply, err := s.Acquire(ctx, &driver.Request{ID: h.ID, Name: h.Name, Mode: driver.Exclusive, N: 1})
				return err == nil && reply.Token != 0
			}), err
		}}
	}},
	{name: "cancel forgets the grant that was quicker", rule: "R8", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, cancel: func(ctx context.Context, name, id string) error {
			changes, err := s.Renew(ctx, []driver.Hold{{Name: name, ID: id}})
			if len(changes) > 0 && changes[0].State == driver.Granted {
				return err
			}
			return s.Cancel(ctx, name, id)
		}}
	}},
	{name: "a hand-over starts a lease of its own", rule: "R6", backend: func(b driver.Backend) driver.Backend {
		return &generous{b}
	}},
	{name: "leases shorter than promised", rule: "R6", backend: func(b driver.Backend) driver.Backend {
		return &opener{b, func(cfg *driver.SessionConfig) { cfg.TTL = cfg.TTL * 3 / 4 }}
	}},
	{name: "leases that last too long", rule: "R6", backend: func(b driver.Backend) driver.Backend {
		return &opener{b, func(cfg *driver.SessionConfig) { cfg.TTL *= 3 }}
	}},
	{name: "names without case", rule: "R9", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			lower := *r
			lower.Name = strings.ToLower(r.Name)
			return s.Acquire(ctx, &lower)
		}}
	}},
	{name: "kinds side by side", rule: "R9", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			other := *r
			if r.Mode == driver.Permits {
				other.Name = fmt.Sprint(r.Name, "#", r.Limit)
			}
			return s.Acquire(ctx, &other)
		}}
	}},
	{name: "no minimum hold", rule: "R4", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			short := *r
			short.MinHold = 0
			return s.Acquire(ctx, &short)
		}}
	}},
	{name: "tokens that stand still", rule: "R3", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			reply.Token = min(reply.Token, 1)
			return reply, err
		}}
	}},
	{name: "break that ends nothing", rule: "R10", backend: func(b driver.Backend) driver.Backend {
		return &noBreak{b}
	}},
	{name: "close that gives nothing back", rule: "R8", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, close: func(context.Context) error { return nil }}
	}},
	{name: "a count for each call", rule: "R5", session: func(s driver.Session) driver.Session {
		n := 0
		return &saboteur{Session: s, count: func(ctx context.Context, name, id string) (int64, error) {
			n++
			return s.CountDown(ctx, name, fmt.Sprint(id, n))
		}}
	}},
	{name: "downgrade that lets go", rule: "R4", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, down: func(ctx context.Context, h driver.Hold) error {
			if err := s.Release(ctx, h, 0); err != nil {
				return err
			}
			_, err := s.Acquire(ctx, &driver.Request{ID: h.ID, Name: h.Name, Mode: driver.Shared, N: 1})
			return err
		}}
	}},
	{name: "adopted under both ids", rule: "R4", session: twoNames()},
	{name: "acquire that waits", rule: "R1", session: func(s driver.Session) driver.Session {
		return &saboteur{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			for {
				reply, err := s.Acquire(ctx, r)
				if err != nil || reply.Token != 0 {
					return reply, err
				}
				time.Sleep(100 * time.Millisecond)
			}
		}}
	}},
	{name: "list without order", rule: "R9", backend: func(b driver.Backend) driver.Backend {
		return &unordered{b}
	}},
}

// twoNames makes sessions of one store that know an adopted grant by its old id as well.
func twoNames() func(driver.Session) driver.Session {
	var also sync.Map
	now := func(h driver.Hold) driver.Hold {
		if id, ok := also.Load(h.ID); ok {
			h.ID = id.(string)
		}
		return h
	}
	return func(s driver.Session) driver.Session {
		return &saboteur{
			Session: s,
			adopt: func(ctx context.Context, h driver.Hold, id, info string) error {
				err := s.Adopt(ctx, h, id, info)
				if err == nil {
					also.Store(h.ID, id)
				}
				return err
			},
			release: func(ctx context.Context, h driver.Hold, keep time.Duration) error {
				return s.Release(ctx, now(h), keep)
			},
			renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
				holds = slices.Clone(holds)
				for i, h := range holds {
					holds[i] = now(h)
				}
				return s.Renew(ctx, holds)
			},
		}
	}
}

type opener struct {
	driver.Backend
	change func(*driver.SessionConfig)
}

func (o *opener) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	o.change(&cfg)
	return o.Backend.Open(ctx, cfg)
}

type noBreak struct{ driver.Backend }

func (b *noBreak) Break(ctx context.Context, name string, token uint64) error {
	r, err := b.Inspect(ctx, name)
	if err != nil || len(r.Holders) == 0 || r.Holders[0].Token != token {
		return driver.ErrGone
	}
	return nil
}

type unordered struct{ driver.Backend }

func (b *unordered) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	l, err := b.Backend.List(ctx, prefix, after, n)
	slices.Reverse(l)
	return l, err
}

type generous struct{ driver.Backend }

func (b *generous) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &saboteur{Session: s, release: func(ctx context.Context, h driver.Hold, keep time.Duration) error {
		err := s.Release(ctx, h, keep)
		if r, rerr := b.Inspect(ctx, h.Name); rerr == nil && len(r.Holders) > 0 {
			_, _ = s.Renew(ctx, []driver.Hold{{Name: h.Name, ID: r.Holders[0].ID}})
		}
		return err
	}}, err
}

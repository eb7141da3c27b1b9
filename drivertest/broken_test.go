package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/failing"
	"github.com/holdfast-lock/holdfast/memlock"
)

// broken is a store with a common mistake. A check of the rule that it breaks must catch it.
type broken struct {
	name, rule string
	backend    func(b driver.Backend) driver.Backend
	session    func(s driver.Session) driver.Session
	conn       func(c Conn) Conn
	believes   bool // every push
}

// TestBrokenStores shows that the suite can fail.
func TestBrokenStores(t *testing.T) {
	for _, b := range slices.Concat(brokenStores, brokenPermits, brokenLimits, brokenRecords, brokenConns,
		brokenPushes, brokenTexts, brokenHistories, brokenCallBacks) {
		t.Run(b.name, func(t *testing.T) {
			for _, topic := range append(slices.Clone(suite), timed) {
				for _, c := range topic {
					if c.rule == b.rule && fails(t, b.harness, c) {
						return
					}
				}
			}
			t.Errorf("not caught by a check of %s", b.rule)
		})
	}
}

// fails reports whether the store fails a check. The store is made inside the bubble, because time
// outside is another.
func fails(t *testing.T, h func() Harness, c check) (failed bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		failed = failing.Run(t, func(t testing.TB) { h().check(t, c) })
	})
	return failed
}

// The broken store passes every check while nothing is broken. Otherwise a check that fails would
// say nothing about a mistake.
func TestWholeStore(t *testing.T) {
	for _, topic := range append(slices.Clone(suite), timed) {
		for _, c := range topic {
			if fails(t, broken{}.harness, c) {
				t.Errorf("%s, %s: fails although nothing is broken", c.rule, c.name)
			}
		}
	}
}

// harness returns the harness of a store with a mistake.
func (b broken) harness() Harness {
	room := &pushServer{believesAll: b.believes, sessions: map[string]*pushSession{}}
	spoils := &damageable{Backend: memlock.New(), bad: map[string]bool{}}
	gated, refuse := Refusing(spoils)
	return Harness{
		TTL: time.Second, Bubble: true, Names: 100, Restart: func(testing.TB) {}, Open: func(testing.TB) Conn {
			c := Faulty(&sabotaged{gated, b})
			c.Backend = &pushBackend{c.Backend, room}
			if b.conn != nil {
				c = b.conn(c)
			}
			return c
		},
		Refuse: map[string]func(testing.TB) func(){"ErrRefused": func(testing.TB) func() { return refuse() }},
		Damage: map[string]func(testing.TB, string){"spoilt": func(_ testing.TB, name string) { spoils.damage(name) }},
		Forger: &Forger{Send: room.send, Message: message},
	}
}

type sabotaged struct {
	driver.Backend
	broken
}

func (s *sabotaged) Watch(ctx context.Context, prefix string, changed func(string)) error {
	return driver.Watch(ctx, s.Backend, prefix, changed)
}

func (s *sabotaged) inner() driver.Backend {
	if s.backend != nil {
		return s.backend(s.Backend)
	}
	return s.Backend
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

func (s *sabotaged) RemoveLatch(ctx context.Context, name string) error {
	return s.inner().RemoveLatch(ctx, name)
}

func (s *sabotaged) SetLimit(ctx context.Context, name string, limit int) error {
	return s.inner().SetLimit(ctx, name, limit)
}

func (s *sabotaged) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	return s.inner().List(ctx, prefix, after, n)
}

func (s *sabotaged) AddHistory(ctx context.Context, name, text string, keep int) error {
	return s.inner().AddHistory(ctx, name, text, keep)
}

func (s *sabotaged) History(ctx context.Context, name string) ([]driver.Entry, error) {
	return s.inner().History(ctx, name)
}

var brokenStores = []broken{
	{name: "grants a held lock", rule: "R4", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if reply.Holder != nil {
				reply.Token = reply.Holder.Token + 1
			}
			return reply, err
		}}
	}},
	{name: "acquire is not idempotent", rule: "R5", session: func(s driver.Session) driver.Session {
		n := 0
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			again := *r
			n++
			again.ID += fmt.Sprint("-", n)
			return s.Acquire(ctx, &again)
		}}
	}},
	{name: "a block has one token", rule: "R21", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			one := *r
			one.Tokens = min(r.Tokens, 1)
			return s.Acquire(ctx, &one)
		}}
	}},
	{name: "a repeated grant has another token", rule: "R21", session: func(s driver.Session) driver.Session {
		granted := map[string]bool{}
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if granted[r.ID] && reply.Token > 1 && r.Tokens > 1 {
				reply.Token--
			}
			granted[r.ID] = granted[r.ID] || reply.Token != 0
			return reply, err
		}}
	}},
	{name: "release sends no push", rule: "R7", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if reply.Wake != nil {
				reply.Wake = make(chan uint64)
			}
			return reply, err
		}}
	}},
	{name: "release without a check of the owner", rule: "R4", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, release: func(ctx context.Context, h driver.Hold, keep time.Duration) error {
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
	{name: "renew revives an expired lease", rule: "R12", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
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
	{name: "cancel keeps a grant that came first", rule: "R8", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, cancel: func(ctx context.Context, name, id string) error {
			changes, err := s.Renew(ctx, []driver.Hold{{Name: name, ID: id}})
			if len(changes) > 0 && changes[0].State == driver.Granted {
				return err
			}
			return s.Cancel(ctx, name, id)
		}}
	}},
	{name: "a lease counts from the hand-over", rule: "R6", backend: func(b driver.Backend) driver.Backend {
		return &longLeases{b}
	}},
	{name: "leases shorter than promised", rule: "R6", backend: func(b driver.Backend) driver.Backend {
		return &openWith{b, func(cfg *driver.SessionConfig) { cfg.TTL = cfg.TTL * 3 / 4 }}
	}},
	{name: "a renewal ends a long lease early", rule: "R17", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
			changes, err := s.Renew(ctx, holds)
			for _, h := range holds {
				if h.Lease != 0 && h.Token != 0 {
					time.AfterFunc(h.Lease, func() { _ = s.Release(context.Background(), h, 0) })
				}
			}
			return changes, err
		}}
	}},
	{name: "all leases last for a TTL", rule: "R17", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			long := *r
			long.Lease = 0
			return s.Acquire(ctx, &long)
		}}
	}},
	{name: "leases that last too long", rule: "R6", backend: func(b driver.Backend) driver.Backend {
		return &openWith{b, func(cfg *driver.SessionConfig) { cfg.TTL *= 3 }}
	}},
	{name: "names that ignore case", rule: "R9", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			lower := *r
			lower.Name = strings.ToLower(r.Name)
			return s.Acquire(ctx, &lower)
		}}
	}},
	{name: "two kinds of one name", rule: "R9", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			other := *r
			if r.Mode == driver.Permits {
				other.Name = fmt.Sprint(r.Name, "#", r.Limit)
			}
			return s.Acquire(ctx, &other)
		}}
	}},
	{name: "no minimum hold", rule: "R4", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			short := *r
			short.MinHold = 0
			return s.Acquire(ctx, &short)
		}}
	}},
	{name: "cancel that keeps the name", rule: "R8", session: func(s driver.Session) driver.Session {
		var grants sync.Map // the last grant of each ID with a minimum hold
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if reply.Token != 0 && r.MinHold > 0 {
				grants.Store(r.ID, driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token})
			}
			return reply, err
		}, cancel: func(ctx context.Context, name, id string) error {
			if h, held := grants.Load(id); held {
				return s.Release(ctx, h.(driver.Hold), 0)
			}
			return s.Cancel(ctx, name, id)
		}}
	}},
	{name: "tokens that do not grow", rule: "R3", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			reply.Token = min(reply.Token, 1)
			return reply, err
		}}
	}},
	{name: "break that ends nothing", rule: "R10", backend: func(b driver.Backend) driver.Backend {
		return &noBreak{b}
	}},
	{name: "close that releases nothing", rule: "R8", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, close: func(context.Context) error { return nil }}
	}},
	{name: "each call counts down", rule: "R5", session: func(s driver.Session) driver.Session {
		n := 0
		return &sabotagedSession{Session: s, count: func(ctx context.Context, name, id string) (int64, error) {
			n++
			return s.CountDown(ctx, name, fmt.Sprint(id, n))
		}}
	}},
	{name: "downgrade that releases", rule: "R4", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, down: func(ctx context.Context, h driver.Hold) error {
			if err := s.Release(ctx, h, 0); err != nil {
				return err
			}
			_, err := s.Acquire(ctx, &driver.Request{ID: h.ID, Name: h.Name, Mode: driver.Shared, N: 1})
			return err
		}}
	}},
	{name: "adopted under both IDs", rule: "R4", session: twoNames()},
	{name: "acquire that waits", rule: "R1", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
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

// twoNames makes sessions of a store that knows an adopted grant by its old ID as well.
func twoNames() func(driver.Session) driver.Session {
	var also sync.Map
	now := func(h driver.Hold) driver.Hold {
		if id, ok := also.Load(h.ID); ok {
			h.ID = id.(string)
		}
		return h
	}
	return func(s driver.Session) driver.Session {
		return &sabotagedSession{
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

type openWith struct {
	driver.Backend
	change func(*driver.SessionConfig)
}

func (o *openWith) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
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

type longLeases struct{ driver.Backend }

func (b *longLeases) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &sabotagedSession{Session: s, release: func(ctx context.Context, h driver.Hold, keep time.Duration) error {
		err := s.Release(ctx, h, keep)
		if r, rerr := b.Inspect(ctx, h.Name); rerr == nil && len(r.Holders) > 0 {
			_, _ = s.Renew(ctx, []driver.Hold{{Name: h.Name, ID: r.Holders[0].ID}})
		}
		return err
	}}, err
}

package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// damageable is a store whose records can be damaged, and that answers as R15 demands.
type damageable struct {
	driver.Backend
	mu  sync.Mutex
	bad map[string]bool
}

func (s *damageable) Watch(ctx context.Context, prefix string, changed func(string)) error {
	return driver.Watch(ctx, s.Backend, prefix, changed)
}

func (s *damageable) damage(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad[name] = true
}

func (s *damageable) check(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad[name] {
		return fmt.Errorf("%w: the record of %q cannot be read", driver.ErrDamaged, name)
	}
	return nil
}

func (s *damageable) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	n, err := s.Backend.Open(ctx, cfg)
	return &damageableSession{n, s}, err
}

func (s *damageable) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	list, err := s.Backend.List(ctx, prefix, after, limit)
	for i, r := range list {
		if err := s.check(r.Name); err != nil {
			list[i] = driver.Record{Name: r.Name, Damaged: "no record"}
		}
	}
	return list, err
}

func (s *damageable) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := s.check(name); err != nil {
		return driver.Record{}, err
	}
	return s.Backend.Inspect(ctx, name)
}

func (s *damageable) Break(ctx context.Context, name string, token uint64) error {
	if err := s.check(name); err != nil {
		return err
	}
	return s.Backend.Break(ctx, name, token)
}

func (s *damageable) RemoveLatch(ctx context.Context, name string) error {
	if err := s.check(name); err != nil {
		return err
	}
	return s.Backend.RemoveLatch(ctx, name)
}

func (s *damageable) SetLimit(ctx context.Context, name string, limit int) error {
	if err := s.check(name); err != nil {
		return err
	}
	return s.Backend.SetLimit(ctx, name, limit)
}

type damageableSession struct {
	driver.Session
	s *damageable
}

func (n *damageableSession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if err := n.s.check(r.Name); err != nil {
		return driver.Reply{}, err
	}
	return n.Session.Acquire(ctx, r)
}

func (n *damageableSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if err := n.s.check(h.Name); err != nil {
		return err
	}
	return n.Session.Release(ctx, h, keep)
}

func (n *damageableSession) Reduce(ctx context.Context, h driver.Hold, left int) error {
	if err := n.s.check(h.Name); err != nil {
		return err
	}
	return n.Session.Reduce(ctx, h, left)
}

func (n *damageableSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	var good []driver.Hold
	var changes []driver.Change
	at := map[int]int{}
	for i, h := range holds {
		if n.s.check(h.Name) != nil {
			changes = append(changes, driver.Change{Index: i, State: driver.Gone})
			continue
		}
		at[len(good)] = i
		good = append(good, h)
	}
	news, err := n.Session.Renew(ctx, good)
	if err != nil {
		return nil, err
	}
	for _, ch := range news {
		ch.Index = at[ch.Index]
		changes = append(changes, ch)
	}
	return changes, nil
}

func (n *damageableSession) SetCount(ctx context.Context, name string, count int64) (bool, error) {
	if err := n.s.check(name); err != nil {
		return false, err
	}
	return n.Session.SetCount(ctx, name, count)
}

func (n *damageableSession) CountDown(ctx context.Context, name, id string) (int64, error) {
	if err := n.s.check(name); err != nil {
		return 0, err
	}
	return n.Session.CountDown(ctx, name, id)
}

func (n *damageableSession) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if err := n.s.check(name); err != nil {
		return driver.Reply{}, err
	}
	return n.Session.Await(ctx, name, id)
}

var brokenRecords = []broken{
	{name: "pushes before it writes", rule: "R13", session: pushesFirst()},
	{name: "pushes another token than it writes", rule: "R13", session: func(s driver.Session) driver.Session {
		over := make(chan struct{})
		return &sabotagedSession{
			Session: s,
			acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
				reply, err := s.Acquire(ctx, r)
				if in := reply.Wake; in != nil {
					out := make(chan uint64, 1)
					reply.Wake = out
					go func() {
						select {
						case token := <-in:
							out <- token + 1
						case <-over:
						}
					}()
				}
				return reply, err
			},
			close: func(ctx context.Context) error { defer close(over); return s.Close(ctx) },
		}
	}},
	{name: "a refusal counts as the end", rule: "R13", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, renew: func(ctx context.Context, holds []driver.Hold) (changes []driver.Change,
			err error) {
			if changes, err = s.Renew(ctx, holds); err == nil {
				return changes, nil
			}
			for i := range holds {
				changes = append(changes, driver.Change{Index: i, State: driver.Gone})
			}
			return changes, nil
		}}
	}},
	{name: "a refusal counts as proof", rule: "R13", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
			changes, _ := s.Renew(ctx, holds)
			return changes, nil
		}}
	}},
	{name: "a refused request is done later", rule: "R13", session: func(s driver.Session) driver.Session {
		var refused []driver.Request
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			reply, err := s.Acquire(ctx, r)
			if err != nil {
				refused = append(refused, *r)
				return reply, err
			}
			for _, r := range refused {
				_, _ = s.Acquire(ctx, &r)
			}
			return reply, err
		}, cancel: func(ctx context.Context, name, id string) error {
			for _, r := range refused {
				_, _ = s.Acquire(ctx, &r)
			}
			return s.Cancel(ctx, name, id)
		}}
	}},
	{name: "a waiter that was passed over gets the last token", rule: "R14",
		session: func(s driver.Session) driver.Session {
			return &sabotagedSession{Session: s, renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
				changes, err := s.Renew(ctx, holds)
				for i, ch := range changes {
					if ch.State == driver.Gone && holds[ch.Index].Token == 0 {
						changes[i].State, changes[i].Token = driver.Granted, 1
					}
				}
				return changes, err
			}}
		}},
	{name: "one bad record fails the renewal", rule: "R15", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, renew: func(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
			changes, err := s.Renew(ctx, holds)
			if slices.ContainsFunc(changes, func(ch driver.Change) bool {
				return ch.State == driver.Gone && holds[ch.Index].Token != 0
			}) {
				return nil, driver.ErrUncertain
			}
			return changes, err
		}}
	}},
	{name: "one bad record fails the list", rule: "R15",
		backend: func(b driver.Backend) driver.Backend { return &listFails{b} }},
	{name: "cancels once", rule: "R8", session: func(s driver.Session) driver.Session {
		var done sync.Map
		return &sabotagedSession{Session: s, cancel: func(ctx context.Context, name, id string) error {
			if _, again := done.LoadOrStore(id, true); again {
				return nil
			}
			return s.Cancel(ctx, name, id)
		}}
	}},
	{name: "a push after the cancel", rule: "R14", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, cancel: func(ctx context.Context, name, id string) error {
			changes, err := s.Renew(ctx, []driver.Hold{{Name: name, ID: id}})
			if len(changes) > 0 && changes[0].State == driver.Granted {
				return err // the waiter keeps the grant
			}
			return s.Cancel(ctx, name, id)
		}}
	}},
}

// pushesFirst makes sessions of a store that push to the waiters of a name before they ask the
// store to release it.
func pushesFirst() func(driver.Session) driver.Session {
	var mu sync.Mutex
	wakes := map[string][]chan uint64{}
	return func(s driver.Session) driver.Session {
		return &sabotagedSession{
			Session: s,
			acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
				reply, err := s.Acquire(ctx, r)
				if reply.Wake != nil {
					out := make(chan uint64, 1)
					reply.Wake = out
					mu.Lock()
					wakes[r.Name] = append(wakes[r.Name], out)
					mu.Unlock()
				}
				return reply, err
			},
			release: func(ctx context.Context, h driver.Hold, keep time.Duration) error {
				mu.Lock()
				first := wakes[h.Name]
				delete(wakes, h.Name)
				mu.Unlock()
				if len(first) > 0 {
					first[0] <- h.Token + 1
				}
				return s.Release(ctx, h, keep)
			},
		}
	}
}

// listFails does not list next to a damaged record.
type listFails struct{ driver.Backend }

func (b *listFails) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	list, err := b.Backend.List(ctx, prefix, after, n)
	for _, r := range list {
		if r.Damaged != "" {
			return nil, fmt.Errorf("%w: %s", driver.ErrDamaged, r.Name)
		}
	}
	return list, err
}

// brokenConns are mistakes in the connection to the store.
var brokenConns = []broken{
	{name: "reports no changes", rule: "R13", conn: func(c Conn) Conn {
		c.Backend = struct{ driver.Backend }{c.Backend}
		return c
	}},
	{name: "waits for forgotten connections for ever", rule: "R11", conn: func(c Conn) Conn {
		c.Forget = func() { c.Cut() }
		return c
	}},
	{name: "ignores contexts", rule: "R1", conn: func(c Conn) Conn {
		c.Backend = &ignoresContexts{c.Backend}
		return c
	}},
}

// ignoresContexts ignores the contexts of Acquire and Inspect.
type ignoresContexts struct{ driver.Backend }

func (b *ignoresContexts) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		return s.Acquire(ctx, r)
	}}, err
}

package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/modeltest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// model opens a store for the comparison with the rule.
func model(*rapid.T) modeltest.Store {
	s, now := memlock.New(), time.Duration(0)
	s.SetClock(func() time.Duration { return now })
	gated, refuse := drivertest.Refusing(s)
	return modeltest.Store{Backend: gated, Refuse: refuse, Pass: func(d time.Duration) { now += d }}
}

func TestModel(t *testing.T) { modeltest.Check(t, 8, model) }

// The model must notice stores with one mistake each.
func TestModelCatches(t *testing.T) {
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			modeltest.Catches(t, 8, 8, func(t *rapid.T) modeltest.Store {
				s := model(t)
				s.Backend = &mistaken{Backend: s.Backend, make: m}
				return s
			})
		})
	}
}

// The model must notice a store that does what it has to refuse.
func TestModelCatchesRefusals(t *testing.T) {
	modeltest.Catches(t, 8, 8, func(t *rapid.T) modeltest.Store {
		s := model(t)
		s.Refuse = func() func() { return func() {} }
		return s
	})
}

// mistake is a session with some methods replaced.
type mistake struct {
	driver.Session
	acquire func(*driver.Request) (driver.Reply, error)
	cancel  func(name, id string) error
	release func(h driver.Hold, keep time.Duration) error
	renew   func([]driver.Hold) ([]driver.Change, error)
	down    func(driver.Hold) error
	reduce  func(h driver.Hold, n int) error
	adopt   func(h driver.Hold, id, info string) error
	count   func(name, id string) (int64, error)
	await   func(name, id string) (driver.Reply, error)
	close   func() error
	breaks  func(name string, token uint64) error // of the backend
	limit   func(name string, limit int) error
}

var ctx = context.Background()

var mistakes = map[string]func(b driver.Backend, m *mistake){
	"places are not renewed": func(_ driver.Backend, m *mistake) {
		m.renew = func(holds []driver.Hold) ([]driver.Change, error) {
			if slices.ContainsFunc(holds, func(h driver.Hold) bool { return h.Token == 0 }) {
				return nil, nil
			}
			return m.Session.Renew(ctx, holds)
		}
	},
	"no minimum hold": func(_ driver.Backend, m *mistake) {
		m.acquire = func(r *driver.Request) (driver.Reply, error) {
			short := *r
			short.MinHold = 0
			return m.Session.Acquire(ctx, &short)
		}
	},
	"a grant takes one token": func(_ driver.Backend, m *mistake) {
		m.acquire = func(r *driver.Request) (driver.Reply, error) {
			one := *r
			one.Tokens = 1
			return m.Session.Acquire(ctx, &one)
		}
	},
	"nothing is kept": func(_ driver.Backend, m *mistake) {
		m.release = func(h driver.Hold, _ time.Duration) error { return m.Session.Release(ctx, h, 0) }
	},
	"nobody is woken": func(_ driver.Backend, m *mistake) {
		m.acquire = func(r *driver.Request) (driver.Reply, error) {
			reply, err := m.Session.Acquire(ctx, r)
			if reply.Wake != nil {
				reply.Wake = make(chan uint64)
			}
			return reply, err
		}
	},
	"cancel leaves the grant": func(b driver.Backend, m *mistake) {
		m.cancel = func(name, id string) error {
			r, err := b.Inspect(ctx, name)
			if slices.ContainsFunc(r.Holders, func(h driver.Holder) bool { return h.ID == id && !h.Kept }) {
				return err
			}
			return m.Session.Cancel(ctx, name, id)
		}
	},
	"what ran out is revived": func(_ driver.Backend, m *mistake) {
		m.renew = func(holds []driver.Hold) ([]driver.Change, error) {
			ch, err := m.Session.Renew(ctx, holds)
			return slices.DeleteFunc(ch, func(c driver.Change) bool {
				h := holds[c.Index]
				if c.State != driver.Gone || h.Token == 0 {
					return false
				}
				reply, err := m.Session.Acquire(ctx, &driver.Request{ID: h.ID, Name: h.Name, Mode: driver.Exclusive, N: 1})
				return err == nil && reply.Token != 0
			}), err
		}
	},
	"a downgrade does nothing": func(_ driver.Backend, m *mistake) {
		m.down = func(h driver.Hold) error { return nil }
	},
	"permits that are given back stay taken": func(_ driver.Backend, m *mistake) {
		m.reduce = func(h driver.Hold, n int) error { return nil }
	},
	"the number is that of permits to give back": func(b driver.Backend, m *mistake) {
		m.reduce = func(h driver.Hold, n int) error {
			r, err := b.Inspect(ctx, h.Name)
			for _, o := range r.Holders {
				if o.Token == h.Token && o.N > n {
					return m.Session.Reduce(ctx, h, max(1, o.N-n))
				}
			}
			return errors.Join(err, m.Session.Reduce(ctx, h, n))
		}
	},
	"the adopted keeps its id": func(_ driver.Backend, m *mistake) {
		m.adopt = func(h driver.Hold, _, info string) error { return m.Session.Adopt(ctx, h, h.ID, info) }
	},
	"an adoption cannot be repeated": func(b driver.Backend, m *mistake) {
		m.adopt = func(h driver.Hold, id, info string) error {
			r, err := b.Inspect(ctx, h.Name)
			if err == nil && !slices.ContainsFunc(r.Holders,
				func(o driver.Holder) bool { return o.ID == h.ID && o.Token == h.Token }) {
				return driver.ErrGone
			}
			return m.Session.Adopt(ctx, h, id, info)
		}
	},
	"each call counts": func(_ driver.Backend, m *mistake) {
		n := 0
		m.count = func(name, id string) (int64, error) {
			n++
			return m.Session.CountDown(ctx, name, fmt.Sprint(id, "-", n))
		}
	},
	"who awaits is not woken": func(_ driver.Backend, m *mistake) {
		m.await = func(name, id string) (driver.Reply, error) {
			reply, err := m.Session.Await(ctx, name, id)
			if reply.Wake != nil {
				reply.Wake = make(chan uint64)
			}
			return reply, err
		}
	},
	"close gives nothing back": func(_ driver.Backend, m *mistake) {
		m.close = func() error { return nil }
	},
	"a broken latch stays": func(b driver.Backend, m *mistake) {
		m.breaks = func(name string, token uint64) error {
			if r, err := b.Inspect(ctx, name); err == nil && r.Kind == driver.Latch && token == 1 {
				return nil
			}
			return b.Break(ctx, name, token)
		}
	},
	"a limit too high": func(b driver.Backend, m *mistake) {
		m.limit = func(name string, limit int) error { return b.SetLimit(ctx, name, limit+1) }
	},
	"a repeated request joins again": func(_ driver.Backend, m *mistake) {
		again := map[string]int{}
		m.acquire = func(r *driver.Request) (driver.Reply, error) {
			other := *r
			if again[r.ID]++; again[r.ID] > 1 {
				other.ID = fmt.Sprint(r.ID, "-", again[r.ID])
			}
			return m.Session.Acquire(ctx, &other)
		}
	},
	"permits are not asked for a limit": func(_ driver.Backend, m *mistake) {
		m.acquire = func(r *driver.Request) (driver.Reply, error) {
			reply, err := m.Session.Acquire(ctx, r)
			if errors.Is(err, driver.ErrKind) {
				return driver.Reply{}, nil
			}
			return reply, err
		}
	},
}

func (m *mistake) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if m.acquire != nil {
		return m.acquire(r)
	}
	return m.Session.Acquire(ctx, r)
}

func (m *mistake) Cancel(ctx context.Context, name, id string) error {
	if m.cancel != nil {
		return m.cancel(name, id)
	}
	return m.Session.Cancel(ctx, name, id)
}

func (m *mistake) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if m.release != nil {
		return m.release(h, keep)
	}
	return m.Session.Release(ctx, h, keep)
}

func (m *mistake) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if m.renew != nil {
		return m.renew(holds)
	}
	return m.Session.Renew(ctx, holds)
}

func (m *mistake) Downgrade(ctx context.Context, h driver.Hold) error {
	if m.down != nil {
		return m.down(h)
	}
	return m.Session.Downgrade(ctx, h)
}

func (m *mistake) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if m.reduce != nil {
		return m.reduce(h, n)
	}
	return m.Session.Reduce(ctx, h, n)
}

func (m *mistake) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if m.adopt != nil {
		return m.adopt(h, id, info)
	}
	return m.Session.Adopt(ctx, h, id, info)
}

func (m *mistake) CountDown(ctx context.Context, name, id string) (int64, error) {
	if m.count != nil {
		return m.count(name, id)
	}
	return m.Session.CountDown(ctx, name, id)
}

func (m *mistake) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if m.await != nil {
		return m.await(name, id)
	}
	return m.Session.Await(ctx, name, id)
}

func (m *mistake) Close(ctx context.Context) error {
	if m.close != nil {
		return m.close()
	}
	return m.Session.Close(ctx)
}

// mistaken is a store whose sessions have a mistake.
type mistaken struct {
	driver.Backend
	make func(driver.Backend, *mistake)
	once sync.Once
	own  mistake // for methods that belong to no session
}

func (b *mistaken) mine() *mistake {
	b.once.Do(func() { b.make(b.Backend, &b.own) })
	return &b.own
}

func (b *mistaken) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	m := &mistake{Session: s}
	b.make(b.Backend, m)
	return m, err
}

func (b *mistaken) Break(ctx context.Context, name string, token uint64) error {
	if f := b.mine().breaks; f != nil {
		return f(name, token)
	}
	return b.Backend.Break(ctx, name, token)
}

func (b *mistaken) SetLimit(ctx context.Context, name string, limit int) error {
	if f := b.mine().limit; f != nil {
		return f(name, limit)
	}
	return b.Backend.SetLimit(ctx, name, limit)
}

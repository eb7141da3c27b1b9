package drivertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// memory is the reason why nobody else can reach the store.
const memory = "it is in the memory of this process"

// locksOnly refuses what a store of locks alone has to refuse, except for its mistake.
type locksOnly struct {
	*memlock.Store
	mistake string
}

func (b *locksOnly) refuse(what string) error {
	if b.mistake == what {
		return nil
	}
	return fmt.Errorf("%w: no %s here", driver.ErrInvalid, what)
}

func (b *locksOnly) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Store.Open(ctx, cfg)
	return &locksOnlySession{s, b}, err
}

func (b *locksOnly) Kinds() driver.Kinds {
	return driver.Kinds{Shared: true, MinHold: true, Blocks: true, Latches: b.mistake == "kinds"}
}

func (b *locksOnly) RemoveLatch(ctx context.Context, name string) error {
	if err := b.refuse("removals"); err != nil {
		return err
	}
	return b.Store.RemoveLatch(ctx, name)
}

func (b *locksOnly) SetLimit(ctx context.Context, name string, limit int) error {
	if err := b.refuse("limits"); err != nil {
		return err
	}
	return b.Store.SetLimit(ctx, name, limit)
}

type locksOnlySession struct {
	driver.Session
	b *locksOnly
}

func (s *locksOnlySession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	if err := r.CheckTokens(s.b.Kinds()); err != nil {
		return driver.Reply{}, err
	}
	if r.Mode != driver.Permits {
		return s.Session.Acquire(ctx, r)
	}
	if s.b.mistake == "traces" { // refused, but the place in the queue stays
		_, _ = s.Session.Acquire(ctx, r)
	}
	if err := s.b.refuse("permits"); err != nil {
		return driver.Reply{}, err
	}
	return s.Session.Acquire(ctx, r)
}

func (s *locksOnlySession) Reduce(ctx context.Context, h driver.Hold, n int) error {
	return s.b.refuse("reductions")
}

func (s *locksOnlySession) SetCount(ctx context.Context, name string, n int64) (bool, error) {
	if err := s.b.refuse("latches"); err != nil {
		return false, err
	}
	return s.Session.SetCount(ctx, name, n)
}

func (s *locksOnlySession) CountDown(ctx context.Context, name, id string) (int64, error) {
	if err := s.b.refuse("counts"); err != nil {
		return 0, err
	}
	return s.Session.CountDown(ctx, name, id)
}

func (s *locksOnlySession) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	if err := s.b.refuse("waits"); err != nil {
		return driver.Reply{}, err
	}
	return s.Session.Await(ctx, name, id)
}

// locksOnlyHarness gives each check a store of its own; all connections of one check share it.
func locksOnlyHarness(mistake string) Harness {
	stores := map[testing.TB]*locksOnly{}
	return Harness{TTL: time.Second, Restart: func(testing.TB) {}, Bubble: true, CannotRefuse: memory,
		CannotDamage: memory, CannotForge: memory, Open: func(t testing.TB) Conn {
			if stores[t] == nil {
				stores[t] = &locksOnly{memlock.New(), mistake}
			}
			return Faulty(stores[t])
		}}
}

// A store that keeps only locks passes its suite.
func TestLocksOnly(t *testing.T) { Run(t, locksOnlyHarness("")) }

// A store that grants or keeps what it has to refuse fails.
func TestLocksOnlyBroken(t *testing.T) {
	for _, mistake := range []string{"permits", "latches", "counts", "waits", "limits", "traces", "removals", "kinds",
		"reductions"} {
		t.Run(mistake, func(t *testing.T) {
			if !fails(t, func() Harness { return locksOnlyHarness(mistake) }, locksOnlyChecks[0]) {
				t.Error("not caught")
			}
		})
	}
}

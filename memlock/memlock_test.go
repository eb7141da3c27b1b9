package memlock_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	stores := stores{}
	drivertest.Run(t, drivertest.Harness{
		TTL:     time.Second,
		Names:   testenv.Rounds(1000, 10_000),
		Bubble:  true,
		Open:    func(t testing.TB) drivertest.Conn { return drivertest.Faulty(stores.of(t).Backend) },
		Restart: func(testing.TB) {},
		Refuse: map[string]func(testing.TB) func(){
			"ErrRefused": func(t testing.TB) func() { return stores.of(t).refuse() },
		},
		CannotForge:  "a push is a call within the process",
		CannotDamage: "no other program writes to the memory of this one",
	})
}

type store struct {
	driver.Backend
	refuse func() (heal func())
}

// stores gives each test a store of its own; all connections of one test share it.
type stores map[testing.TB]store

func (s stores) of(t testing.TB) store {
	if _, ok := s[t]; !ok {
		b, refuse := drivertest.Refusing(memlock.New())
		s[t] = store{b, refuse}
	}
	return s[t]
}

// A session keeps no channel of a request that has waited and has been released or cancelled. A
// push that nobody has read before the cancel is not read after it.
func TestNoWaiterIsLeft(t *testing.T) {
	s, err := memlock.New().Open(t.Context(), driver.SessionConfig{ID: "s", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(id string) driver.Reply {
		t.Helper()
		reply, err := s.Acquire(t.Context(), &driver.Request{ID: id, Name: "x", Mode: driver.Exclusive, N: 1, Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	release := func(id string, token uint64) {
		t.Helper()
		if err := s.Release(t.Context(), driver.Hold{Name: "x", ID: id, Token: token}, 0); err != nil {
			t.Fatal(err)
		}
	}
	first, second, third := acquire("1"), acquire("2"), acquire("3")
	release("1", first.Token)
	release("2", <-second.Wake)
	if len(third.Wake) != 1 {
		t.Fatal("no push")
	}
	if err := s.Cancel(t.Context(), "x", "3"); err != nil || len(third.Wake) > 0 {
		t.Errorf("Cancel: %v; %d pushes follow", err, len(third.Wake))
	}
	if n := memlock.Waiters(s); n > 0 {
		t.Errorf("%d channels are left", n)
	}
}

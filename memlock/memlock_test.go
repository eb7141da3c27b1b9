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

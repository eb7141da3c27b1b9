package memlock_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		TTL:     time.Second,
		Bubble:  true,
		Open:    opener(),
		Restart: func(testing.TB) {},
	})
}

// opener gives each test a store of its own, and each connection of one test the same.
func opener() func(testing.TB) drivertest.Conn {
	stores := map[testing.TB]*memlock.Store{}
	return func(t testing.TB) drivertest.Conn {
		if stores[t] == nil {
			stores[t] = memlock.New()
		}
		return drivertest.Faulty(stores[t])
	}
}

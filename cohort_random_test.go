package holdfast_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast"
)

// Clients with many calls exclude each other, whatever the calls do, and tokens grow.
func TestPassesExclude(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(seed)
			if seed%2 == 1 {
				w.bound(t)
			}
			users := []user{
				{client(t, w, &holdfast.Config{Passes: 5}), nil}, {client(t, w, nil), nil},
				{client(t, w, &holdfast.Config{Passes: -1}), nil},
			}
			if leases, passed := w.contend(t, users, 24, 20); leases < 200 || passed < 20 {
				t.Errorf("seed %d: only %d leases, %d of them passed on", seed, leases, passed)
			}
		})
	}
}

package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-lock/holdfast/memlock"
)

// Children of a lease's context have ended before Release hands the lock to the next waiter, and
// before HandOff returns the ticket.
func TestDerivedContextsEndFirst(t *testing.T) {
	for _, what := range []string{"Release", "HandOff"} {
		t.Run(what, func(t *testing.T) {
			c := client(t, memlock.New(), nil)
			late, most := 0, 0
			const rounds, each = 20, 3000
			for range rounds {
				l := lock(t, c, "x")
				ctx := l.Context(context.Background())
				var derived []context.Context
				for range each {
					d, cancel := context.WithCancel(ctx)
					defer cancel()
					derived = append(derived, d)
				}
				if what == "Release" {
					release(t, l)
				} else if _, _, err := l.HandOff(); err != nil {
					t.Fatal(err)
				}
				alive := 0
				for _, d := range derived {
					if d.Err() == nil {
						alive++
					}
				}
				if alive > 0 {
					late, most = late+1, max(most, alive)
				}
				if what == "HandOff" {
					_ = l.Release()
				}
			}
			if late > 0 {
				t.Errorf("in %d of %d rounds up to %d of %d contexts had not ended", late, rounds, most, each)
			}
		})
	}
}

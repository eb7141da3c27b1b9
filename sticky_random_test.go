package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// Sticky clients and others exclude each other, whatever the calls do and whichever answers and
// call-backs are lost. Tokens grow, and nothing is left at the store.
func TestStickyExcludes(t *testing.T) {
	const d = 30 * time.Millisecond
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(seed)
			if seed%2 == 1 {
				w.bound(t)
			}
			w.tries, w.rest = true, 3*d
			lossy := &recalls{Backend: w}
			lossy.set(func(name, id string, next func(name, id string)) {
				switch {
				case w.chance(10): // it is lost
				case w.chance(4): // it is late
					late := w.pause(20 * time.Millisecond)
					go func() {
						time.Sleep(late)
						next(name, id)
					}()
				default:
					next(name, id)
				}
			})
			sticks := []holdfast.Option{holdfast.Sticky(d)}
			users := []user{
				{client(t, lossy, nil), sticks}, {client(t, lossy, &holdfast.Config{Passes: 5}), sticks},
				{client(t, w, nil), nil}, {client(t, w, &holdfast.Config{Passes: -1}), nil},
			}
			if leases, passed := w.contend(t, users, 16, 25); leases < 100 || passed < 10 {
				t.Errorf("seed %d: only %d leases, %d of them without an exchange", seed, leases, passed)
			}
			time.Sleep(2 * d)
			synctest.Wait()
			if r := must(w.store.Inspect(context.Background(), "x"))(t); len(r.Holders) != 0 {
				t.Errorf("seed %d: left at the store: %+v", seed, r.Holders)
			}
		})
	}
}

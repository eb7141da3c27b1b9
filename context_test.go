package holdfast_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A context of the application that blocks delays no other context, of the same lease or of
// another. It delays neither its own child nor a Close with a deadline.
func TestContextsWithABlockingParent(t *testing.T) {
	for _, how := range []string{"loss", "close"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := drivertest.Faulty(memlock.New())
				c := client(t, conn, nil)
				parent, stop := context.WithCancel(t.Context())
				defer stop()
				bad := &stubborn{Context: parent, stuck: make(chan struct{})}
				defer close(bad.stuck)
				l := lock(t, c, "x")
				own := l.Context(bad)
				for range 5 {
					l.Context(bad)
				}
				beside := l.Context(t.Context())
				apart := map[string]context.Context{"its own": own, "another of the same lease": beside}
				for i := range 5 {
					other := lock(t, c, fmt.Sprint("other ", i))
					apart[other.Name()] = other.Context(t.Context())
				}
				bad.late.Store(true)
				closed := make(chan struct{})
				if how == "close" {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					go func() { defer close(closed); _ = c.Close(ctx) }()
				} else {
					close(closed)
					conn.Cut()
				}
				time.Sleep(2 * ttl)
				for what, ctx := range apart {
					select {
					case <-ctx.Done():
					default:
						t.Errorf("%s: not cancelled two TTLs later", what)
					}
				}
				select {
				case <-closed:
				default:
					t.Error("Close with a bound of a second has not returned after two TTLs")
				}
			})
		})
	}
}

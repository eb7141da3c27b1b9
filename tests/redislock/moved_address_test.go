package redislock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestAddressThatMovesOn: an address leads to the next primary. Existing connections stay at the
// old one, which is now a replica without a link to its primary. However the replica reports that,
// the client leaves it.
func TestAddressThatMovesOn(t *testing.T) {
	t.Parallel()
	for _, stale := range []string{"yes", "no"} {
		t.Run("replica-serve-stale-data "+stale, func(t *testing.T) {
			t.Parallel()
			old, next := testenv.Redis(t, "--replica-serve-stale-data", stale), testenv.Redis(t)
			p := testenv.Proxy(t, old.Addr)
			b := redislock.New(dialRueidis(t, p.Addr), nil)
			s := openSession(t, b, long)
			h := granted(t, s, exclusive(newID()))
			p.Turn(next.Addr)
			old.Do("REPLICAOF 127.0.0.1 1")
			began := time.Now()
			var err error
			for time.Since(began) < 10*time.Second {
				r := exclusive(newID())
				r.Wait = false
				if _, err = s.Acquire(within(t, soon), r); err == nil {
					break
				}
				_, _ = s.Renew(within(t, soon), []driver.Hold{h})
				time.Sleep(100 * time.Millisecond)
			}
			if err != nil {
				t.Errorf("after %v still at the old server: %v", time.Since(began).Round(time.Second), err)
			}
		})
	}
}

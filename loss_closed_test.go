package holdfast

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A loss whose reason nobody asks for any more, since the client is closed meanwhile, delays neither
// Release nor Why.
func TestReleaseBesideClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, end := range map[string]func(*Lease) error{"Release": (*Lease).Release, "Why": (*Lease).Why} {
			c, _ := sleeper(t)
			l := mutex(t, c, t.Context())
			why := lost("use", &l.req, ReasonEnded)
			c.mu.Lock()
			contexts := c.endTree(l, why, nil) // as after the answer to a renewal
			c.mu.Unlock()
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.cancelAndReport([]endedLease{{l, why, contexts}})
			begin := time.Now()
			err := end(l)
			if took := time.Since(begin); took > 0 || !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v after %v; want ErrLost at once", what, err, took)
			}
		}
	})
}

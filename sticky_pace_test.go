package holdfast_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memlock"
)

// A client takes no more tokens than microseconds pass, but for a moment. Here no time
// passes, so every later lease costs an exchange, until it does.
func TestStickyPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const free = 20_000 + 64 // small blocks do not count
		store, n := counted(memlock.New())
		c := client(t, store, nil)
		for range free {
			takeX(t, c, sticky())
		}
		before := n.Load()
		if before > 100 {
			t.Errorf("%d exchanges for the first %d leases", before, free)
		}
		first := uint64(0)
		for range 50 {
			first = takeX(t, c, sticky())
		}
		if n.Load()-before < 100 {
			t.Errorf("%d exchanges for 50 more leases: the client has more tokens than microseconds passed", n.Load()-before)
		}
		time.Sleep(21 * time.Millisecond) // the clock catches up
		before = n.Load()
		last := uint64(0)
		for range 500 {
			last = takeX(t, c, sticky())
		}
		if last < first+500 || n.Load()-before > 30 {
			t.Errorf("tokens %d to %d, %d exchanges for 500 leases after 21 ms", first, last, n.Load()-before)
		}
	})
}

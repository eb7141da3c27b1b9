package sqllock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func quickest(do func()) time.Duration {
	best := time.Hour
	for range 7 { // the quickest of some: the least disturbed
		start := time.Now()
		do()
		best = min(best, time.Since(start))
	}
	return best
}

// TestSQLiteCostIsFlat compares what a hand-over costs with 20 and with 5,000 in line, and a
// permit with 10 and with 10,000 holders; the race detector makes do with a third.
func TestSQLiteCostIsFlat(t *testing.T) {
	b := openTest(t, storePath(t), nil)
	s := openTestSession(t, b, time.Hour)
	ctx := context.Background()
	const line, holders = 5000 / raceFactor, 10_000 / raceFactor
	cost := map[int]time.Duration{}
	for _, n := range []int{20, line} {
		name := fmt.Sprint("line", n)
		req := exclusive(name)
		h := granted(t, s, req)
		type waiter struct {
			req  *driver.Request
			wake <-chan uint64
		}
		var waiters []waiter
		for range n {
			req := exclusive(name)
			waiters = append(waiters, waiter{req, queued(t, s, req)})
		}
		cost[n] = quickest(func() {
			must(t, s.Release(ctx, h, 0))
			h = holdOf(waiters[0].req, <-waiters[0].wake)
			waiters = waiters[1:]
		})
	}
	t.Log("hand-over", cost)
	if cost[line] > 4*cost[20]+time.Millisecond {
		t.Errorf("a hand-over costs %v with %d in line, %v with 20", cost[line], line, cost[20])
	}
	for _, n := range []int{10, holders} {
		name := fmt.Sprint("sem", n)
		for range n {
			granted(t, s, permits(name, 1, 20_000))
		}
		cost[n] = quickest(func() {
			req := permits(name, 1, 20_000)
			must(t, s.Release(ctx, granted(t, s, req), 0))
		})
	}
	t.Log("permit", cost)
	if cost[holders] > 4*cost[10]+time.Millisecond {
		t.Errorf("a permit costs %v with %d holders, %v with 10", cost[holders], holders, cost[10])
	}
	must(t, s.Close(ctx)) // without the limit of a second that the store's Close has
}

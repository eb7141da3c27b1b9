// Package stall tells how long the machine stood still. Tests of leases ask it: who has no core for a second cannot
// renew in that second, and a failure then says nothing of a store.
package stall

import (
	"sync"
	"time"
)

// tick is how often the watch wants to run: what is shorter than a few of them is not seen.
const tick = 10 * time.Millisecond

// Watch begins to watch. longest ends that, and is the longest time since the call for which this process, which wanted to
// go on, could not; it is called once. A timer that fires late on a busy machine counts as much as a machine that stops.
func Watch() (longest func() time.Duration) {
	var most time.Duration
	var done sync.WaitGroup
	end := make(chan struct{})
	done.Go(func() {
		for {
			before := time.Now()
			time.Sleep(tick)
			most = max(most, time.Since(before)-tick)
			select {
			case <-end:
				return
			default:
			}
		}
	})
	return func() time.Duration {
		close(end)
		done.Wait()
		return most
	}
}

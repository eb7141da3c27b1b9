package quorum

import (
	"slices"
	"sync"
	"time"
)

// A clock estimates a time that the clocks of a majority will not have reached when a request
// arrives, so that they accept the proposed token. A wrong estimate costs an exchange, and its
// answers correct it.
type clock struct {
	start time.Time

	mu     sync.Mutex
	offset []time.Duration // of each server's clock, from this process's
	trip   time.Duration   // how long exchanges take
	lead   time.Duration   // the most that a server accepts
}

// spare is how much later than the last exchanges a request may arrive before its token is refused.
const spare = 5 * time.Millisecond

func newClock(servers int, lead time.Duration) *clock {
	return &clock{start: time.Now(), offset: make([]time.Duration, servers), lead: lead}
}

// now returns the time since start.
func (c *clock) now() time.Duration { return time.Since(c.start) }

// saw records that server i answered a request sent at sent with the clock t.
func (c *clock) saw(i int, sent, t time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset[i] = t - sent // later by the way there, which the next request takes too
	c.trip = (3*c.trip + c.now() - sent) / 4
}

// propose returns a token for a request that is about to be sent; 0 before any server was seen.
func (c *clock) propose() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make([]time.Duration, 0, MaxServers)
	for _, o := range c.offset {
		if o != 0 {
			seen = append(seen, o)
		}
	}
	if len(seen) == 0 {
		return 0
	}
	slices.Sort(seen)
	// The slowest clock that a majority does not exceed: a few wrong clocks do not decide.
	offset := seen[min(len(c.offset)/2, len(seen)-1)]
	return uint64((c.now() + offset + min(spare+c.trip, c.lead/2)).Microseconds())
}

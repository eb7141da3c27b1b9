package example

import (
	"sync"
	"time"
)

// Crowd makes clients meet between their read and their write.
type Crowd struct {
	limit time.Duration

	mu      sync.Mutex
	missing int
	all     chan struct{} // closed when all are here
}

// Crowd returns a Crowd of n clients. Without the lock all of them read before the first one writes, as
// may happen in a rush: the damage is certain. Under the lock they cannot meet, and wait a moment.
func (x *Run) Crowd(n int) *Crowd {
	c := &Crowd{limit: 20 * time.Millisecond, missing: n, all: make(chan struct{})}
	if x.WithoutLock {
		c.limit = time.Minute
	}
	return c
}

// Wait waits until all clients are here, or for as long as they may need.
func (c *Crowd) Wait() {
	c.mu.Lock()
	if c.missing--; c.missing == 0 {
		close(c.all)
	}
	c.mu.Unlock()
	select {
	case <-c.all:
	case <-time.After(c.limit):
	}
}

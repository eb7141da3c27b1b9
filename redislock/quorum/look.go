package quorum

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// soon compares the clocks in the background. The caller holds c.mu.
func (c *clocks) soon() {
	if c.running || c.life.Err() != nil {
		return
	}
	c.running = true
	c.bg.Go(func() {
		for n := range lookTimes {
			wait := min(lookMost<<min(n, 5), askLimit)
			if c.isUnclear() {
				wait = askLimit
			}
			c.look(wait)
			if c.allSound() || !backoff.Sleep(c.life, min(lookPause<<min(n, 5), time.Second)) {
				break
			}
		}
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
	})
}

// allSound reports whether no connected server needs a comparison.
func (c *clocks) allSound() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.b.servers {
		if c.views[i].trust != sound && s.connected() != nil {
			return false
		}
	}
	return true
}

// isUnclear reports whether another server may show which clocks are right.
func (c *clocks) isUnclear() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unclear
}

// look asks all servers for their clocks, and compares them. It waits that long for answers, but only for lookMost if
// the result is urgent.
func (c *clocks) look(wait time.Duration) {
	ctx, cancel := context.WithTimeout(c.life, wait)
	defer cancel()
	began := time.Since(c.start)
	answers, open, answered := make(chan int, len(c.b.servers)), 0, make([]bool, len(c.b.servers))
	for i, s := range c.b.servers {
		m := s.connected()
		if m == nil {
			continue
		}
		open++
		go func() {
			_, err := m.Birth(ctx, false)
			if err == nil {
				answers <- i
				return
			}
			c.mu.Lock()
			if v := &c.views[i]; v.trust != sound && v.at < began {
				v.at = 0 // nothing is known
			}
			c.mu.Unlock()
			answers <- -1
		}()
	}
	tick := time.NewTicker(lookMost / 10)
	defer tick.Stop()
	for open > 0 {
		select {
		case i := <-answers:
			open--
			if i >= 0 {
				answered[i] = true
			}
		case <-tick.C:
		}
		if time.Since(c.start)-began >= lookMost && c.urgent(answered) {
			cancel()
		}
	}
	c.decide(c.life, began)
}

// urgent reports whether the servers that have answered need no others for a ruling, and one of them waits for it.
func (c *clocks) urgent(answered []bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, waits := 0, false
	for i, v := range c.views {
		if answered[i] {
			n++
			waits = waits || v.trust != sound
		}
	}
	return waits && n >= c.b.need() && !c.unclear
}

package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// Figures are numbers of a run, for people. Package history judges without them.
type Figures struct {
	Grants int
	Rate   float64 // grants a second, from the first call to the last grant

	// HandOver is the time from the call that released an exclusive lock until a waiter had the
	// grant.
	HandOver Spread

	// Recovery is the time from the death of a process that held an exclusive lock until the lock's
	// next grant.
	Recovery Spread

	Lost int // leases that had ended before they were released

	LongestWait time.Duration // the longest time of a call until it was answered

	// LockOuts counts the times longer than a TTL in which calls waited and no lock was granted.
	LockOuts       int
	LongestLockOut time.Duration
}

// Spread is the distribution of some times.
type Spread struct {
	N             int
	P50, P99, Max time.Duration
}

func spreadOf(all []time.Duration) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	slices.Sort(all)
	at := func(p int) time.Duration { return all[(len(all)-1)*p/100] }
	return Spread{len(all), at(50), at(99), all[len(all)-1]}
}

// String returns the spread for people.
func (s Spread) String() string {
	if s.N == 0 {
		return "never seen"
	}
	return fmt.Sprintf("p50 %v, p99 %v, at most %v of %d", rounded(s.P50), rounded(s.P99), rounded(s.Max), s.N)
}

// rounded returns d with about three digits.
func rounded(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Microsecond; unit /= 10 {
		if d >= 10*unit {
			return d.Round(unit / 10)
		}
	}
	return d.Round(time.Microsecond)
}

// openCall is a call that is not over: it waits, or holds.
type openCall struct {
	name, process string
	call          int64
	mode          driver.Mode
	wait, held    bool
}

// counter goes through events in order of time.
type counter struct {
	ttl      int64
	open     map[string]*openCall
	released map[string]int64 // of names last released by an exclusive holder: when
	died     map[string]int64 // of names whose holder has died: when
	waiting  int
	stuck    int64 // since when calls wait without any grant
	f        Figures
	handOver []time.Duration
	recovery []time.Duration
}

// figuresOf counts. Events are in order of time.
func figuresOf(events []history.Event, ttl time.Duration) Figures {
	c := &counter{ttl: int64(ttl), open: map[string]*openCall{}, released: map[string]int64{}, died: map[string]int64{}}
	first, last := int64(0), int64(0)
	for i := range events {
		e := &events[i]
		c.step(e)
		switch {
		case e.Kind == history.Acquire && first == 0:
			first = e.T
		case e.Kind == history.Granted:
			last = e.T
		}
	}
	if n := len(events); n > 0 && c.waiting > 0 {
		c.stuckUntil(events[n-1].T)
	}
	if last > first {
		c.f.Rate = float64(c.f.Grants) / time.Duration(last-first).Seconds()
	}
	c.f.HandOver, c.f.Recovery = spreadOf(c.handOver), spreadOf(c.recovery)
	return c.f
}

func (c *counter) step(e *history.Event) {
	a := c.open[e.ID]
	switch e.Kind {
	case history.Acquire:
		process, _, _ := strings.Cut(e.Client, "/")
		a = &openCall{name: e.Name, process: process, call: e.T, mode: e.Mode, wait: e.Wait}
		if a.mode == 0 {
			a.mode = driver.Exclusive
		}
		c.open[e.ID] = a
		if a.wait {
			if c.waiting == 0 {
				c.stuck = e.T
			}
			c.waiting++
		}
	case history.Granted:
		if a != nil && !a.held {
			c.granted(a, e.T)
		}
	case history.Refused, history.Cancelled, history.Unanswered:
		if a != nil {
			c.over(e.ID, a, e.T)
		}
	case history.Release:
		if a != nil && a.held && a.mode == driver.Exclusive {
			c.released[a.name] = e.T
		}
	case history.Released:
		delete(c.open, e.ID)
	case history.Lost:
		c.f.Lost++
		if a != nil {
			delete(c.released, a.name)
		}
	case history.Died:
		for id, a := range c.open {
			if a.process != e.Client {
				continue
			}
			if a.held && a.mode == driver.Exclusive {
				c.died[a.name] = e.T
			}
			c.over(id, a, e.T)
		}
	}
}

// over ends a call without a grant, or of a dead process.
func (c *counter) over(id string, a *openCall, t int64) {
	delete(c.open, id)
	if a.held || !a.wait {
		return
	}
	c.waited(a, t)
}

func (c *counter) waited(a *openCall, t int64) {
	if c.waiting--; c.waiting == 0 {
		c.stuckUntil(t)
	}
	c.f.LongestWait = max(c.f.LongestWait, time.Duration(t-a.call))
}

// stuckUntil notes that calls have waited without any grant until t.
func (c *counter) stuckUntil(t int64) {
	if t-c.stuck > c.ttl {
		c.f.LockOuts++
		c.f.LongestLockOut = max(c.f.LongestLockOut, time.Duration(t-c.stuck))
	}
	c.stuck = t
}

func (c *counter) granted(a *openCall, t int64) {
	c.f.Grants++
	if c.waiting > 0 {
		c.stuckUntil(t)
	}
	a.held = true
	if a.wait {
		c.waited(a, t)
	}
	if at, ok := c.released[a.name]; ok && a.wait && a.call < at {
		c.handOver = append(c.handOver, time.Duration(t-at))
	}
	delete(c.released, a.name)
	if at, ok := c.died[a.name]; ok {
		c.recovery = append(c.recovery, time.Duration(t-at))
		delete(c.died, a.name)
	}
}

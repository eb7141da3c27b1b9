package faults

import (
	"testing"
	"time"
)

// killed: servers that keep what they acknowledged are killed, as by kill -9, and started again: at once, and when
// leases have run out. The lock is with the holder, or the holder knows that it is not; the line goes on.
func killed(t *testing.T, s *site, harmed int) {
	kill := func() {
		for _, m := range s.servers[:harmed] {
			m.Kill()
		}
	}
	begin := func() time.Time {
		for _, m := range s.servers[:harmed] {
			m.Start()
		}
		return time.Now()
	}
	c := s.scene()
	kill()
	since := begin()
	select {
	case <-c.held.Done():
		c.told()
		c.release(c.served())
	case <-time.After(lasting): // it has been renewed since, or is over
		c.passesOn()
	}
	t.Logf("%v after the servers: the holder's %v", time.Since(since), c.held.Err())

	before := c.held.Token()
	c.held = s.lock(c.holder, name)
	if c.held.Token() <= before {
		t.Errorf("token %d after %d", c.held.Token(), before)
	}
	c.next = c.waits()
	since = time.Now()
	kill()
	c.told()
	time.Sleep(time.Until(since.Add(lasting))) // all leases have run out
	since = begin()
	c.release(c.served())
	t.Logf("served %v after the servers", time.Since(since))
}

package faults

import (
	"testing"
	"time"
)

// killed: servers that keep acknowledged data are killed, as by kill -9, and started again: at
// once, and after leases have expired. The holder still has the lock, or knows that it has not; the
// queue continues.
func killed(t *testing.T, s *site, affected int) {
	kill := func() {
		for _, m := range s.servers[:affected] {
			m.Kill()
		}
	}
	begin := func() time.Time {
		for _, m := range s.servers[:affected] {
			m.Start()
		}
		return time.Now()
	}
	c := s.newFixture()
	kill()
	since := begin()
	select {
	case <-c.held.Done():
		c.waitLost()
		c.release(c.waitGranted())
	case <-time.After(watchTime): // it was renewed since, or has ended
		c.handOver()
	}
	t.Logf("%v after the servers: the holder's %v", time.Since(since), c.held.Err())

	before := c.held.Token()
	c.held = s.lock(c.holder, name)
	if c.held.Token() <= before {
		t.Errorf("token %d after %d", c.held.Token(), before)
	}
	c.next = c.startWaiter()
	since = time.Now()
	kill()
	c.waitLost()
	time.Sleep(time.Until(since.Add(watchTime))) // all leases have expired
	since = begin()
	c.release(c.waitGranted())
	t.Logf("granted %v after the servers", time.Since(since))
}

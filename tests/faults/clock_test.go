package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// timed is a store, and whether its leases end by the server's wall clock.
type timed struct {
	name        string
	start       func(t *testing.T) *site
	jumps       int  // on how many servers the clock jumps
	serverClock bool // leases end by that clock
}

func timedStores() []timed {
	return []timed{
		{"Redis", func(t *testing.T) *site { return redisSite(t) }, 1, true},
		{"MariaDB", func(t *testing.T) *site { return mariaDBSite(t) }, 1, true},
		{"PostgreSQL", func(t *testing.T) *site { return postgresSite(t) }, 1, true},
		// Its sessions end by the monotonic clock.
		{"ZooKeeper", func(t *testing.T) *site { return zooKeeperSite(t) }, 1, false},
		// The others notice, and do not count these servers; the others are a majority.
		{"quorum, minority", quorumSite, 2, false},
	}
}

// majority is a quorum in which most clocks jump at the same time: the other servers then seem
// wrong. Where they no longer vote, holders may lose their leases, which is safe.
var majority = timed{"quorum, majority", quorumSite, 3, true}

// clocks are the clocks of some of a store's servers, which jump together.
type clocks []*testenv.Clock

func (s *site) clocks(n int) (all clocks) {
	s.t.Helper()
	for _, m := range s.servers[:n] {
		all = append(all, m.OwnClock())
	}
	return all
}

func (all clocks) jump(d time.Duration) time.Time {
	for _, c := range all {
		c.Jump(d)
	}
	return time.Now()
}

// fencedResource remembers the highest token it has seen.
type fencedResource struct {
	mu      sync.Mutex
	highest uint64
}

func (g *fencedResource) write(token uint64) (taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.highest {
		return false
	}
	g.highest = token
	return true
}

// TestClock sets the clocks of servers.
func TestClock(t *testing.T) {
	t.Parallel()
	for _, store := range append(timedStores(), majority) {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			s := store.start(t)
			clock := s.clocks(store.jumps)
			if store.name != majority.name {
				t.Run("back", func(t *testing.T) { clockBack(t, s.at(t), store.serverClock, clock) })
			}
			t.Run("under contention", func(t *testing.T) { clockJumps(t, s.at(t), store.serverClock, clock) })
			t.Run("forward", func(t *testing.T) { clockForward(t, s.at(t), store.serverClock, clock) })
		})
	}
}

// clockForward: the server's clock jumps ahead by an hour, past the end of every lease. Where
// leases end by that clock, the lock is granted again at once: exclusion fails for that lease. Its
// holder learns of the loss by its next renewal, at most a third of the TTL later. Until then the
// resource refuses it.
func clockForward(t *testing.T, s *site, serverClock bool, clock clocks) {
	c := s.newFixture()
	c.exclusive.Store(!serverClock)
	alone, renewals := s.clientWithRenewals()
	idle := s.lock(alone, "nobody waits for the lock")
	jumped := clock.jump(time.Hour)
	if !serverClock {
		c.staysTrusted(jumped.Add(watchTime))
		c.handOver()
		c.release(idle)
		return
	}
	next := c.waitGranted() // checks that the token is larger
	resource := &fencedResource{}
	if !resource.write(next.Token()) || resource.write(c.held.Token()) {
		t.Error("the resource accepts what it should refuse, or refuses what it should accept")
	}
	overlap := time.Since(jumped)
	lostByRenewal(t, c.held, c.renewals, jumped)
	lostByRenewal(t, idle, renewals, jumped)
	t.Logf("granted again after %v, the holder learned of it after %v", overlap, time.Since(jumped))
	// Leases granted since last as usual.
	select {
	case <-next.Done():
		t.Errorf("the next holder has lost the lock: %v", next.Err())
	case <-time.After(watchTime):
	}
	c.release(next)
	again := s.lock(c.holder, name)
	if again.Token() <= next.Token() {
		t.Errorf("token %d after %d", again.Token(), next.Token())
	}
	c.release(again)
}

// clockBack: the server's clock is set back by an hour. Living clients notice nothing: leases are
// renewed, and a release grants the lock to the next waiter, with a larger token. Where leases end
// by that clock, a dead holder's lease ends an hour late, or when an operator breaks it.
func clockBack(t *testing.T, s *site, serverClock bool, clock clocks) {
	c := s.newFixture()
	dead := s.abandonLock("abandoned")
	jumped := clock.jump(-time.Hour)
	c.staysTrusted(jumped.Add(watchTime))
	c.handOver()
	c.held = s.lock(c.holder, name)
	c.next = c.startWaiter() // again, by the clock that was set back
	c.handOver()

	r := c.recordOf("abandoned")
	if !serverClock {
		// It has expired as usual: the lock is free, or soon will be.
		next := s.lock(c.waiter, "abandoned")
		if next.Token() <= dead.Token {
			t.Errorf("token %d after %d", next.Token(), dead.Token)
		}
		return
	}
	if len(r.Holders) != 1 || r.Holders[0].Token != dead.Token || r.Holders[0].Left < 59*time.Minute {
		t.Fatalf("the dead holder's lock: %+v; want it held for an hour", r)
	}
	t.Logf("a dead holder's lease lasts for another %v", r.Holders[0].Left)
	if err := c.watcher.Break(limited(t), "abandoned", dead.Token); err != nil {
		t.Fatalf("Break: %v", err)
	}
	next := s.lock(c.waiter, "abandoned")
	if next.Token() <= dead.Token {
		t.Errorf("token %d after %d", next.Token(), dead.Token)
	}
	c.release(next)
}

// abandonLock takes a lock for a client that stops.
func (s *site) abandonLock(name string) driver.Hold {
	s.t.Helper()
	b := s.backend()
	// Answers may be late on a busy machine.
	served := func(err error) bool {
		if err != nil && !transient(err) {
			s.t.Fatal(err)
		}
		return err == nil
	}
	var dead driver.Session
	until(s.t, "a session is opened", func() bool {
		var err error
		dead, err = b.Open(limited(s.t), driver.SessionConfig{ID: "dead", TTL: ttl})
		return served(err)
	})
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = dead.Close(ctx) // its grant was broken
	})
	h := driver.Hold{Name: name, ID: "dead-1"}
	until(s.t, "the name is locked", func() bool {
		reply, err := dead.Acquire(limited(s.t), &driver.Request{ID: h.ID, Name: name, Mode: driver.Exclusive, N: 1})
		h.Token = reply.Token
		if h.Token == 0 && (err == nil || errors.Is(err, driver.ErrSpent)) {
			h.ID += "n" // that request has ended
		}
		return served(err) && h.Token != 0
	})
	return h
}

// clockJumps: the server's clock jumps back and forth while clients contend. A client that requests
// the lock after another has learned of its grant always gets a larger token. All clients continue
// to get the lock. As long as the clock is only set back, there is one holder at a time.
func clockJumps(t *testing.T, s *site, serverClock bool, clock clocks) {
	clients := s.contend(4)
	defer clients.stop()
	clients.checkProgress("at first")
	back := []time.Duration{-time.Second, -time.Minute, -time.Hour}
	for _, d := range back {
		clock.jump(d)
		clients.checkProgress(fmt.Sprint("jump of ", d))
	}
	if serverClock {
		clients.allowOverlap()
	}
	for _, d := range []time.Duration{time.Hour, -time.Minute, 2 * time.Hour, -time.Hour, time.Minute} {
		clock.jump(d)
		clients.checkProgress(fmt.Sprint("jump of ", d))
	}
}

// contenders are clients that take one lock again and again.
type contenders struct {
	t    *testing.T
	end  context.CancelFunc
	work sync.WaitGroup

	mu         sync.Mutex
	reported   uint64 // the highest token that a client has received
	grants     map[int]int
	inside     *holdfast.Lease
	mayOverlap bool // two may hold the lock
}

func (s *site) contend(n int) *contenders {
	s.t.Helper()
	ctx, end := context.WithCancel(context.Background())
	c := &contenders{t: s.t, end: end, grants: map[int]int{}}
	for i := range n {
		client := s.client()
		c.mu.Lock()
		c.grants[i] = 0
		c.mu.Unlock()
		c.work.Go(func() {
			for ctx.Err() == nil {
				before := c.highest()
				l, err := client.Mutex("contended").Lock(ctx)
				if err != nil {
					if ctx.Err() == nil && !transient(err) {
						c.t.Errorf("Lock: %v", err)
						return
					}
					continue
				}
				c.granted(i, l, before)
				select { // so that an overlap would be noticed
				case <-time.After(10 * time.Millisecond):
				case <-l.Done():
				}
				c.released(l)
				_ = l.Release() // the lease may have ended
			}
		})
	}
	return c
}

func (c *contenders) highest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported
}

func (c *contenders) granted(i int, l *holdfast.Lease, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Token() <= before {
		c.t.Errorf("token %d, asked for after %d had been granted", l.Token(), before)
	}
	if c.inside != nil && !c.mayOverlap && c.inside.Err() == nil {
		c.t.Errorf("token %d is granted while token %d is trusted", l.Token(), c.inside.Token())
	}
	c.reported, c.inside = max(c.reported, l.Token()), l
	c.grants[i]++
}

func (c *contenders) released(l *holdfast.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside == l {
		c.inside = nil
	}
}

// allowOverlap allows that two hold the lock from now on.
func (c *contenders) allowOverlap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayOverlap = true
}

// checkProgress waits until each client has got the lock three more times.
func (c *contenders) checkProgress(after string) {
	c.t.Helper()
	due := map[int]int{}
	c.mu.Lock()
	for i, n := range c.grants {
		due[i] = n + 3
	}
	c.mu.Unlock()
	start := time.Now()
	until(c.t, "all get the lock again after "+after, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, n := range due {
			if c.grants[i] < n {
				return false
			}
		}
		return true
	})
	c.t.Logf("%s: all got the lock within %v", after, time.Since(start))
}

func (c *contenders) stop() {
	c.end()
	c.work.Wait()
}

package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// timed is a store whose leases its server's wall clock ends, or does not.
type timed struct {
	name  string
	start func(t *testing.T) *site
	jumps int  // of how many servers the clock jumps
	heeds bool // leases end by that clock
}

func timedStores() []timed {
	return []timed{
		{"Redis", func(t *testing.T) *site { return redisSite(t) }, 1, true},
		{"MariaDB", func(t *testing.T) *site { return mariaDBSite(t) }, 1, true},
		{"PostgreSQL", func(t *testing.T) *site { return postgresSite(t) }, 1, true},
		// Its sessions are timed by the monotonic clock.
		{"ZooKeeper", func(t *testing.T) *site { return zooKeeperSite(t) }, 1, false},
		// They are found out, and stay out; the others are a majority.
		{"quorum, minority", quorumSite, 2, false},
	}
}

// majority is a quorum of which most clocks jump at the same time: it is the others that seem to be wrong. Where this makes
// them stay out, holders may lose what they have; which is safe.
var majority = timed{"quorum, majority", quorumSite, 3, true}

// clocks are those of some of a store's servers, which jump together.
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

// guarded is a resource that keeps the highest token it has seen.
type guarded struct {
	mu      sync.Mutex
	highest uint64
}

func (g *guarded) write(token uint64) (taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.highest {
		return false
	}
	g.highest = token
	return true
}

// TestClock: the clocks of servers are set.
func TestClock(t *testing.T) {
	t.Parallel()
	for _, store := range append(timedStores(), majority) {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			s := store.start(t)
			clock := s.clocks(store.jumps)
			if store.name != majority.name {
				t.Run("back", func(t *testing.T) { clockBack(t, s.at(t), store.heeds, clock) })
			}
			t.Run("under contention", func(t *testing.T) { clockJumps(t, s.at(t), store.heeds, clock) })
			t.Run("forward", func(t *testing.T) { clockForward(t, s.at(t), store.heeds, clock) })
		})
	}
}

// clockForward: the server's clock jumps ahead by an hour, past the end of every lease. Where leases end by
// that clock the lock is given away at once: exclusion is over for that lease. Its holder is told by its next
// renewal, a third of the TTL later at most, and until then the resource refuses it.
func clockForward(t *testing.T, s *site, heeds bool, clock clocks) {
	c := s.scene()
	c.exclusive = !heeds
	alone, renewals := s.watched()
	idle := s.lock(alone, "nobody waits for it")
	jumped := clock.jump(time.Hour)
	if !heeds {
		c.keeps(jumped.Add(lasting))
		c.passesOn()
		c.release(idle)
		return
	}
	next := c.served() // it checks that the token is larger
	resource := &guarded{}
	if !resource.write(next.Token()) || resource.write(c.held.Token()) {
		t.Error("the resource takes what it should refuse, or the reverse")
	}
	overlap := time.Since(jumped)
	toldByRenewal(t, c.held, c.beats, jumped)
	toldByRenewal(t, idle, renewals, jumped)
	t.Logf("granted again after %v, the holder was told after %v", overlap, time.Since(jumped))
	// What was granted since lasts like any other.
	select {
	case <-next.Done():
		t.Errorf("the next holder has lost it: %v", next.Err())
	case <-time.After(lasting):
	}
	c.release(next)
	again := s.lock(c.holder, name)
	if again.Token() <= next.Token() {
		t.Errorf("token %d after %d", again.Token(), next.Token())
	}
	c.release(again)
}

// clockBack: the server's clock is set back by an hour. Nobody notices who is alive: leases are renewed, the
// next in line has the lock when it is released, with a larger token. A holder who died before it could renew is
// another matter where leases end by that clock: its lease ends an hour late, or when an operator breaks it.
func clockBack(t *testing.T, s *site, heeds bool, clock clocks) {
	c := s.scene()
	dead := s.mute("abandoned")
	jumped := clock.jump(-time.Hour)
	c.keeps(jumped.Add(lasting))
	c.passesOn()
	c.held = s.lock(c.holder, name)
	c.next = c.waits() // anew, by the clock that was set back
	c.passesOn()

	r := c.recordOf("abandoned")
	if !heeds {
		// It has run out as ever: the lock is free, or soon will be.
		heir := s.lock(c.waiter, "abandoned")
		if heir.Token() <= dead.Token {
			t.Errorf("token %d after %d", heir.Token(), dead.Token)
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
	heir := s.lock(c.waiter, "abandoned")
	if heir.Token() <= dead.Token {
		t.Errorf("token %d after %d", heir.Token(), dead.Token)
	}
	c.release(heir)
}

// mute takes a lock for a client that is never heard of again.
func (s *site) mute(name string) driver.Hold {
	s.t.Helper()
	b := s.backend()
	dead, err := b.Open(limited(s.t), driver.SessionConfig{ID: "dead", TTL: ttl})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = dead.Close(ctx) // what it held has been broken
	})
	r := &driver.Request{ID: "dead-1", Name: name, Mode: driver.Exclusive, N: 1}
	reply, err := dead.Acquire(limited(s.t), r)
	if err != nil || reply.Token == 0 {
		s.t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	return driver.Hold{Name: name, ID: r.ID, Token: reply.Token}
}

// clockJumps: the server's clock is set back and forth under clients that contend. Whatever it
// shows, who asks after another was told of its grant has the larger token, and everybody goes on being served.
// As long as it is only set back, nobody has the lock beside another.
func clockJumps(t *testing.T, s *site, heeds bool, clock clocks) {
	crew := s.contend(4)
	defer crew.stop()
	crew.goesOn("at first")
	back := []time.Duration{-time.Second, -time.Minute, -time.Hour}
	for _, d := range back {
		clock.jump(d)
		crew.goesOn(fmt.Sprint("jump of ", d))
	}
	if heeds {
		crew.overlaps()
	}
	for _, d := range []time.Duration{time.Hour, -time.Minute, 2 * time.Hour, -time.Hour, time.Minute} {
		clock.jump(d)
		crew.goesOn(fmt.Sprint("jump of ", d))
	}
}

// crew are clients that take one lock again and again.
type crew struct {
	t    *testing.T
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	told    uint64 // the highest token that somebody has been told of
	grants  map[int]int
	inside  *holdfast.Lease
	relaxed bool // two may be inside
}

func (s *site) contend(n int) *crew {
	s.t.Helper()
	ctx, end := context.WithCancel(context.Background())
	c := &crew{t: s.t, end: end, grants: map[int]int{}}
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
					if ctx.Err() == nil && !passing(err) {
						c.t.Errorf("Lock: %v", err)
						return
					}
					continue
				}
				c.enter(i, l, before)
				select { // so that another would be seen
				case <-time.After(2 * time.Millisecond):
				case <-l.Done():
				}
				c.leave(l)
				_ = l.Release() // the lease may have ended
			}
		})
	}
	return c
}

func (c *crew) highest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

func (c *crew) enter(i int, l *holdfast.Lease, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Token() <= before {
		c.t.Errorf("token %d, asked for after %d had been granted", l.Token(), before)
	}
	if c.inside != nil && !c.relaxed && c.inside.Err() == nil {
		c.t.Errorf("token %d is granted while token %d is trusted", l.Token(), c.inside.Token())
	}
	c.told, c.inside = max(c.told, l.Token()), l
	c.grants[i]++
}

func (c *crew) leave(l *holdfast.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside == l {
		c.inside = nil
	}
}

// overlaps allows that two are inside from now on.
func (c *crew) overlaps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relaxed = true
}

// goesOn waits until each of them has been served three times more.
func (c *crew) goesOn(after string) {
	c.t.Helper()
	due := map[int]int{}
	c.mu.Lock()
	for i, n := range c.grants {
		due[i] = n + 3
	}
	c.mu.Unlock()
	start := time.Now()
	until(c.t, "all go on after "+after, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, n := range due {
			if c.grants[i] < n {
				return false
			}
		}
		return true
	})
	c.t.Logf("%s: all were served within %v", after, time.Since(start))
}

func (c *crew) stop() {
	c.end()
	c.work.Wait()
}

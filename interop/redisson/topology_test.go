package redisson

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/interop/internal/judge"
)

// topology is a contest for a lock in a Cluster of its own, which no other test disturbs.
type topology struct {
	*contest
	servers   *testenv.RedisClusterServers
	name, tag string
}

// newTopology starts a Cluster and both sides, which have warmed up.
func newTopology(t *testing.T, release, sharded, kind string, setup testenv.ClusterSetup) *topology {
	t.Helper()
	servers := testenv.RedisCluster(t, setup)
	own := place{"own cluster", sharded, func(testing.TB) []string { return servers.Addrs() }}
	w := newWorld(t, release, own)
	c := w.contest(kind, 1, short, (*side).startTwo)
	c.run(w.name("warm-up"), 10, nil)
	return &topology{c, servers, w.name(kind), "{" + w.name(kind) + "}"}
}

// move moves the slot of the lock from server to server while all are at work.
func (c *topology) move() {
	c.w.t.Helper()
	moves := 0
	for ; c.busy() && moves < 12; moves++ {
		c.servers.Migrate(c.tag, (c.servers.Owner(c.tag, 0)+1)%3).End()
		time.Sleep(200 * time.Millisecond)
	}
	c.w.t.Logf("%d moves", moves)
	if moves < 3 {
		c.w.t.Errorf("the slot moved only %d times; the test needs 3", moves)
	}
}

// busy reports whether all actors are still at work.
func (c *contest) busy() bool {
	for _, a := range c.actors {
		if a.Answered() {
			return false
		}
	}
	return true
}

// checkDisturbed waits until all have ended, and checks what must be true even if clients of Redisson
// have given up: those of holdfast have not, unless they have learnt that their lock was lost, or that
// its release was not answered. At most so many locks and updates were lost.
func (c *topology) checkDisturbed(losses int) {
	t := c.w.t
	t.Helper()
	lost := 0
	for _, a := range c.actors {
		switch r := a.Reply(); {
		case strings.HasPrefix(r, "ok"):
		case strings.HasPrefix(r, "lost"):
			t.Logf("%s: %s", a, r)
			lost++
		case losses > 0 && strings.HasPrefix(r, "error ") && strings.Contains(r, ": release ") &&
			(strings.Contains(r, holdfast.ErrUncertain.Error()) || strings.Contains(r, holdfast.ErrUnavailable.Error())):
			// The primary died while the holder released: it has, or the release goes on in the background.
			t.Logf("%s: %s", a, r)
			lost++
		case a.Process.Side == c.w.ours().name && !control:
			t.Errorf("%s: %s", a, r)
		default:
			t.Logf("%s: %s", a, r)
		}
	}
	if lost > losses {
		t.Errorf("%d holders have lost the lock; %d may", lost, losses)
	}
	log, writes := c.entries(c.name), 0
	for _, line := range log {
		if strings.HasPrefix(line, "leave ") {
			writes++
		}
	}
	n := c.counter(c.name)
	if n > writes || n < writes-losses {
		t.Errorf("the counter is %d after %d writes; %d may be lost", n, writes, losses)
	}
	v, err := judge.Read(strings.Join(log, "\n"), c.sides, 1)
	if err != nil && losses == 0 {
		t.Error(err)
	}
	t.Logf("the counter is %d after %d writes, %+v, %v", n, writes, v, err)
}

// TestSlotMoves: while both sides contend for a lock, its slot moves from server to server. No lock is
// lost, and nobody waits for ever.
func TestSlotMoves(t *testing.T) {
	if !testenv.Deep() {
		return // scripts/deep.sh runs it
	}
	for _, release := range releases() {
		for _, kind := range []string{"mutex", "rw", "fair"} {
			if release == "3.24.1" {
				continue // it always uses sharded channels
			}
			t.Run(release+"/"+kind, func(t *testing.T) {
				c := newTopology(t, release, "OFF", kind, testenv.ClusterSetup{NoReplicas: true})
				c.run(c.name, rounds, c.move)
				c.check(judge.Verdict{Turns: 5})
			})
		}
		// With sharded channels tryLock of Redisson may say false long before its time is over: also if
		// nobody but Redisson uses the lock.
		t.Run(release+"/sharded", func(t *testing.T) {
			c := newTopology(t, release, "default", "mutex", testenv.ClusterSetup{NoReplicas: true})
			c.start(c.name, rounds)
			c.move()
			c.checkDisturbed(0)
		})
	}
}

// TestFailover: a replica takes the place of the primary while both sides contend for a lock. If an
// operator asks for it, the replica has all data, and no lock is lost. If the primary has died, the
// lock that somebody had then may be lost. All others go on at the new primary.
func TestFailover(t *testing.T) {
	if !testenv.Deep() {
		return // scripts/deep.sh runs it
	}
	for _, release := range releases() {
		for _, died := range []bool{false, true} {
			what, losses := "planned", 0
			if died {
				what, losses = "died", 1
			}
			t.Run(release+"/"+what, func(t *testing.T) {
				c := newTopology(t, release, "default", "mutex", testenv.ClusterSetup{})
				old := c.servers.Owner(c.tag, 0)
				asker := (old + 1) % 3
				c.start(c.name, rounds)
				time.Sleep(300 * time.Millisecond)
				if !c.busy() {
					t.Fatal("the contest was over before the failover")
				}
				if died {
					c.servers.Servers[old].Kill()
					c.servers.Promoted(c.tag, old, asker)
				} else {
					c.servers.Failover(c.tag, old, asker)
				}
				c.checkDisturbed(losses)
			})
		}
	}
}

package zklock_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// judge counts the grants of one name and reports overlaps. It learns of a grant when the holder
// does.
type judge struct {
	t    testing.TB
	mu   sync.Mutex
	in   *holdfast.Lease
	last uint64
	n    int
}

func (j *judge) granted(l *holdfast.Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.in != nil && j.in.Err() == nil {
		j.t.Errorf("token %d is granted while token %d is held", l.Token(), j.in.Token())
	}
	if l.Token() <= j.last {
		j.t.Errorf("token %d after %d", l.Token(), j.last)
	}
	j.in, j.last, j.n = l, l.Token(), j.n+1
}

func (j *judge) released(l *holdfast.Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.in == l {
		j.in = nil
	}
}

func (j *judge) grants() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.n
}

// contend takes a name again and again until stop is closed.
func (j *judge) contend(c *holdfast.Client, name string, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		l, err := c.Mutex(name).Lock(within(j.t))
		switch {
		case err == nil:
			j.granted(l)
			time.Sleep(10 * time.Millisecond) // leaves the processor to the servers
			j.released(l)
			if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUncertain) &&
				!errors.Is(err, holdfast.ErrUnavailable) {
				j.t.Errorf("Release: %v", err)
			}
		case !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrUncertain):
			j.t.Errorf("Lock: %v", err)
			return
		}
	}
}

// Clients contend while leaders are killed, servers are restarted one after the other, and the
// quorum is lost and restored.
func TestEnsembleUnderContention(t *testing.T) {
	t.Parallel()
	e := testenv.ZooKeeperEnsemble(t, 3)
	j := &judge{t: t}
	stop := make(chan struct{})
	var all sync.WaitGroup
	halt := sync.OnceFunc(func() { close(stop); all.Wait() })
	defer halt()
	for i := range testenv.Rounds(5, 8) {
		cfg := on(e.Addrs()...)
		if i < 3 {
			cfg = on(e.Addrs()[i]) // knows one server only
		}
		c := client(t, cfg, 2*time.Second) // short enough that sessions expire, too
		all.Go(func() { j.contend(c, "x", stop) })
	}
	progress := func(what string) {
		t.Helper()
		n := j.grants()
		until(t, what+": the lock is granted again", func() bool { return j.grants() > n+testenv.Rounds(5, 20) })
	}
	progress("at first")
	leader := e.Leader()
	e.Servers[leader].Kill()
	progress("the leader is dead")
	e.Servers[leader].Start()
	for i, z := range e.Servers[:testenv.Rounds(0, 3)] { // rolling restart
		z.Restart(true)
		e.Leader()
		progress("server " + string(rune('1'+i)) + " has been restarted")
	}
	a, b := e.Servers[0], e.Servers[1] // quorum lost
	a.Stop()
	b.Stop()
	time.Sleep(300 * time.Millisecond)
	began := make(chan struct{})
	go func() { defer close(began); a.Start() }()
	b.Start()
	<-began
	progress("the quorum is back")
	halt()
	t.Logf("%d grants", j.grants())
}

// TestEnsemble runs, one after the other, the tests that leave an ensemble as it was.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	e := testenv.ZooKeeperEnsemble(t, 3, "syncLimit=40", longSessions)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *testenv.ZooKeeperEnsembleServers)
	}{
		{"lagging follower", testLaggingFollower},
		{"leader killed", testLeaderKilledDuringHold},
		{"follower frozen", func(t *testing.T, e *testenv.ZooKeeperEnsembleServers) { _ = followerFrozen(t, e) }},
		{"follower cut off", testFollowerCutOff},
	} {
		until(t, "the ensemble is whole", e.Whole)
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

// The leader dies while there is a holder and a waiter. The lease continues or is reported lost,
// the waiter gets the lock, and tokens grow.
func testLeaderKilledDuringHold(t *testing.T, e *testenv.ZooKeeperEnsembleServers) {
	holder, waiter := client(t, on(e.Addrs()...), 2*time.Second), client(t, on(e.Addrs()...), longTTL)
	for range testenv.Rounds(1, 2) {
		l := lock(t, holder, "killed")
		got := make(chan *holdfast.Lease, 1)
		go func() {
			next, err := waiter.Mutex("killed").Lock(within(t))
			wants(t, "Lock", err, nil)
			if err == nil && l.Err() == nil {
				t.Error("granted while the first lease is valid")
			}
			got <- next
		}()
		time.Sleep(100 * time.Millisecond)
		leader := e.Leader()
		e.Servers[leader].Kill()
		time.Sleep(time.Second)
		if err := l.Err(); err != nil {
			wants(t, "the lease", err, holdfast.ErrLost)
		}
		if err := l.Release(); err != nil {
			t.Logf("Release: %v", err)
		}
		next := <-got
		e.Servers[leader].Start()
		e.Leader()
		if next == nil {
			return
		}
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		_ = next.Release() // it may be lost already
	}
}

// The follower that a holder is connected to freezes: the client changes servers in time.
func TestTimedFollowerFrozen(t *testing.T) {
	if err := followerFrozen(t, testenv.ZooKeeperEnsemble(t, 3, longSessions)); err != nil {
		t.Errorf("the lease was lost although two of three servers were well: %v", err)
	}
}

// followerFrozen freezes the follower that a holder is connected to, and returns why the holder lost its
// lease, if it did. Nobody gets the lock before that.
func followerFrozen(t *testing.T, e *testenv.ZooKeeperEnsembleServers) (lost error) {
	t.Helper()
	const ttl = 9 * time.Second // a third of it passes before the client changes servers
	e.Leader()
	follower := e.Followers()[0]
	// The others can be reached only later, so the session begins at this one.
	addrs := []string{e.Servers[follower].Addr}
	var others []*testenv.TCPProxy
	for i, z := range e.Servers {
		if i != follower {
			p := testenv.Proxy(t, z.Addr)
			p.Refuse()
			others, addrs = append(others, p), append(addrs, p.Addr)
		}
	}
	c := client(t, on(addrs...), ttl)
	other := client(t, on(e.Servers[e.Leader()].Addr), longTTL)
	l := lock(t, c, "frozen")
	for _, p := range others {
		p.Heal()
	}
	e.Servers[follower].Pause()
	defer e.Servers[follower].Continue()
	got := make(chan error, 1)
	go func() {
		next, err := other.Mutex("frozen").Lock(within(t))
		if err == nil && l.Err() == nil {
			err = errors.New("granted while the first lease is valid")
		}
		if err == nil && next.Token() <= l.Token() {
			err = errors.New("tokens do not grow")
		}
		got <- err
	}()
	time.Sleep(ttl + time.Second) // longer than a session
	lost = l.Err()
	_ = l.Release()
	wants(t, "the waiter", <-got, nil)
	return lost
}

// A follower that is cut off from the leader still answers. A holder connected to it learns of its
// loss before a client of the leader gets the lock.
func testFollowerCutOff(t *testing.T, e *testenv.ZooKeeperEnsembleServers) {
	follower := func() int { e.Leader(); return e.Followers()[0] }
	for range testenv.Rounds(1, 3) {
		f := follower()
		a, b := client(t, on(e.Servers[f].Addr), time.Second), client(t, on(e.Servers[e.Leader()].Addr), longTTL)
		checkLoss(t, a, b, "cut", func() { e.Isolate(f) })
		e.Join(f)
		until(t, "it follows again", func() bool {
			mode, err := e.Servers[f].Word("srvr")
			return err == nil &&
				len(mode) > 100
		})
	}
}

// A grant through one server is respected by clients of another server that lags behind.
func testLaggingFollower(t *testing.T, e *testenv.ZooKeeperEnsembleServers) {
	e.Leader()
	f := e.Followers()
	a, b := newPeer(t, on(e.Servers[f[0]].Addr)), newPeer(t, on(e.Servers[f[1]].Addr))
	for range testenv.Rounds(10, 50) {
		for _, pair := range [][2]*peer{{a, b}, {b, a}} {
			for _, name := range []string{"x", "s"} {
				newRequest := func(p *peer) *driver.Request {
					if name == "s" {
						return once(p.permits(name, 2, 2))
					}
					return once(p.req(name))
				}
				h := pair[0].get(newRequest(pair[0]))
				pair[1].refused(newRequest(pair[1]))
				pair[0].release(h)
				pair[1].release(pair[1].get(newRequest(pair[1])))
			}
		}
	}
}

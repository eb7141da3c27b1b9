package zk_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A session moves to another server in time, with its nodes and watches.
func TestServerChange(t *testing.T) {
	e := testenv.ZooKeeperEnsemble(t, 3, "syncLimit=100", longSessions) // 10 s
	for _, c := range []struct {
		name    string
		leader  bool
		spoil   func(*testenv.ZooKeeperServer)
		restore func(*testenv.ZooKeeperServer)
	}{
		{"the leader is killed", true, (*testenv.ZooKeeperServer).Kill, (*testenv.ZooKeeperServer).Start},
		{"a follower is frozen", false, (*testenv.ZooKeeperServer).Pause, (*testenv.ZooKeeperServer).Continue},
	} {
		t.Run(c.name, func(t *testing.T) {
			until(t, "all servers serve", e.Whole)
			victim := e.Leader()
			if !c.leader {
				victim = e.Followers()[0]
			}
			// The session begins at the victim: the others can be reached only later.
			addrs := []string{e.Servers[victim].Addr}
			var others []*testenv.TCPProxy
			for i, z := range e.Servers {
				if i != victim {
					p := testenv.Proxy(t, z.Addr)
					p.Refuse()
					others, addrs = append(others, p), append(addrs, p.Addr)
				}
			}
			cfg := on(addrs...)
			cfg.Timeout = 20 * time.Second // it notices a silent server after 5 s
			s := dial(t, cfg)
			for _, p := range others {
				p.Heal()
			}
			id := s.ID()
			dir := "/change-" + map[bool]string{true: "leader", false: "follower"}[c.leader]
			a := arm(t, s, dir)
			create(t, s, dir+"/held", zk.Ephemeral)
			c.spoil(e.Servers[victim])
			began := time.Now()
			defer c.restore(e.Servers[victim])
			until(t, "the session moves", func() bool {
				if isLost(s) {
					t.Fatalf("the session was lost: %v", s.Err())
				}
				ctx, cancel := contextOf(t, 100*time.Millisecond)
				defer cancel()
				return s.Sync(ctx, "/") == nil // the victim cannot answer it
			})
			t.Logf("moved after %v", time.Since(began))
			// It may move once more during the election.
			until(t, "the session continues", func() bool { return s.Sync(within(t), "/") == nil })
			if s.ID() != id || !exists(t, s, dir+"/held") {
				t.Error("another session, or its node is gone")
			}
			change(t, s, dir)
			a.fired(t, dir)
		})
	}
}

// A follower that is cut off from the leader still answers reads. The session must not take these
// answers as a proof: the leader lets the session expire.
func TestFollowerWithoutLeader(t *testing.T) {
	e := testenv.ZooKeeperEnsemble(t, 3, "syncLimit=120", longSessions) // 12 s
	until(t, "all servers serve", e.Whole)
	follower := e.Followers()[0]
	other := dial(t, on(e.Servers[e.Leader()].Addr))
	holder := dial(t, shortSession(e.Servers[follower].Addr))
	create(t, holder, "/held", zk.Ephemeral)
	reader := dial(t, shortSession(e.Servers[follower].Addr)) // shows that the follower answers
	if !exists(t, reader, "/held") {
		t.Fatal("not created")
	}
	// Not just after connecting, when the follower asks the leader.
	until(t, "the session is some time old", func() bool { return holder.Left() < holder.Timeout()*7/10 })
	e.Isolate(follower)
	cut := time.Now()
	var served time.Time
	until(t, "the session expires at the leader", func() bool {
		for _, s := range []*zk.Session{holder, reader} {
			ctx, cancel := contextOf(t, 20*time.Millisecond)
			if _, err := s.Exists(ctx, "/held"); err == nil {
				served = time.Now()
			}
			cancel()
		}
		return !exists(t, other, "/held")
	})
	believes := !isLost(holder) && holder.Left() > 0 // it is reported a moment later
	t.Logf("the follower answered until %v after the cut", served.Sub(cut))
	if believes {
		t.Errorf("free after %v: the session expired before its client noticed", time.Since(cut))
	}
}

// The client's clock ends the session before the servers do.
func TestPartition(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	proxy := testenv.Proxy(t, server.Addr)
	other := dial(t, on(server.Addr))
	s := dial(t, shortSession(proxy.Addr))
	create(t, s, "/held", zk.Ephemeral)

	for range 2 { // repaired in time
		proxy.Hole()
		until(t, "disconnected", func() bool { return !s.Connected() })
		proxy.Heal()
		until(t, "connected", s.Connected)
	}
	if isLost(s) || !exists(t, s, "/held") {
		t.Fatal("a partition that was repaired in time ended the session")
	}

	proxy.Hole()
	left := make(chan time.Duration, 1)
	go func() {
		<-s.Lost()
		left <- s.Left()
	}()
	until(t, "the server deletes the node", func() bool { return !exists(t, other, "/held") })
	if !isLost(s) && s.Left() > 0 { // it is reported a moment later
		t.Fatal("the server deleted the node before the client ended its session")
	}
	<-s.Lost()
	want(t, "Err", s.Err(), zk.ErrSessionExpired)
	if left := <-left; left > 0 {
		t.Errorf("lost when %v was left", left)
	}
	began := time.Now()
	err := s.Delete(within(t), "/held", zk.AnyVersion)
	want(t, "a call after that", err, zk.ErrSessionExpired)
	if time.Since(began) > 5*time.Second {
		t.Error("a call on a lost session waited")
	}
}

// A server that accepts connections and never answers delays neither the start nor the session.
func TestOneHungServer(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	proxy := testenv.Proxy(t, server.Addr)
	hung := silent(t)
	for range 2 {
		s := dial(t, on(hung, silent(t), proxy.Addr))
		create(t, s, "/x", zk.Ephemeral)
		for range 3 {
			proxy.Reset()
			until(t, "moved on", func() bool {
				if isLost(s) {
					t.Fatal("the session was lost")
				}
				err := s.Sync(within(t), "/")
				if err != nil && !errors.Is(err, zk.ErrConnectionLoss) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
		want(t, "close", s.Close(within(t)), nil)
	}
}

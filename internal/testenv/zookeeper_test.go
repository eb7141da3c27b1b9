package testenv

import (
	"strings"
	"testing"
	"time"
)

func TestZooKeeper(t *testing.T) {
	z := ZooKeeper(t)
	for _, graceful := range []bool{true, false} {
		z.Restart(graceful)
		eventually(t, "the server serves after a restart", func() bool {
			mode, err := z.mode()
			return err == nil && mode == "standalone"
		})
	}
	z.Pause()
	if reply, err := z.Word("srvr"); !timeout(err) {
		t.Errorf("a frozen server: %q, %v", reply, err)
	}
	z.Continue()
	if _, err := z.Word("srvr"); err != nil {
		t.Errorf("after Continue: %v", err)
	}
	if alive, err := z.closeSession(1, make([]byte, 16)); alive || err != nil {
		t.Errorf("a session that does not exist: %v, %v", alive, err)
	}
}

func TestZooKeeperTLS(t *testing.T) {
	z := ZooKeeperTLS(t)
	if reply, err := z.Word("srvr"); !strings.Contains(reply, "standalone") {
		t.Errorf("%q, %v", reply, err)
	}
	z.TLS = nil
	if reply, err := z.Word("srvr"); strings.Contains(reply, "Mode") {
		t.Errorf("without TLS: %q, %v", reply, err)
	}
}

func TestZooKeeperEnsemble(t *testing.T) {
	e := ZooKeeperEnsemble(t, 3, "syncLimit=40") // 4 s
	eventually(t, "all servers serve", e.Whole)
	leader := e.Leader()
	f := e.Followers()
	if len(f) != 2 || f[0] == leader || f[1] == leader {
		t.Fatalf("leader %d, followers %v", leader, f)
	}
	follower := f[0]
	e.Isolate(follower)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := e.Servers[follower].mode(); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a follower without a leader serves")
		}
	}
	e.Join(follower)
	e.Servers[follower].await()
	e.Servers[leader].Kill()
	if next := e.Leader(leader); next == leader {
		t.Fatal("a dead server leads")
	}
	e.Servers[leader].Start()
}

package zklock_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Suite{M: m}) }

// longSessions is the server setting that allows sessions of minutes.
const longSessions = "maxSessionTimeout=200000"

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(testenv.ZooKeeper(t, longSessions)))
}

func TestTimedConformance(t *testing.T) {
	drivertest.RunTimed(t, harness(testenv.ZooKeeper(t, longSessions)))
}

func harness(server *testenv.ZooKeeperServer) drivertest.Harness {
	polled := ""
	if os.Getenv("HOLDFAST_TEST_ZOOKEEPER") != "" { // it may be older than 3.6
		polled = "the servers have no recursive watches"
	}
	return drivertest.Harness{
		Polled:  polled,
		TTL:     3 * time.Second, // a session trusts three fifths of it
		Names:   testenv.Rounds(300, 10_000),
		Waiters: testenv.Rounds(driver.MaxWaiters+20, 200),
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			proxy := testenv.Proxy(t, server.Addr)
			b, err := zklock.New(zklock.Config{Servers: []string{proxy.Addr}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return drivertest.Conn{
				Backend:     b,
				Kill:        proxy.Refuse,
				Cut:         func() func() { proxy.Hole(); return proxy.Heal },
				DropReplies: func() func() { proxy.DropReplies(); return proxy.Heal },
				Hold:        proxy.Hold,
				Forget:      proxy.Forget,
			}
		},
		CannotRefuse: "a server that accepts no writes (no quorum, a full disk, read-only mode) serves no session of holdfast: see TestReadOnlyMode",
		CannotDamage: "records are the names of nodes, which nobody can change, and their data, which only the session that created them can change; for latches see TestDamagedLatch",
		CannotForge:  "pushes are watches: the servers send them, for changes that only the node's own session may make; see TestSealedNodes",
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
	}
}

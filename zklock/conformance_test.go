package zklock_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(whole{m}) }

// whole is all tests and the end of the server that they share.
type whole struct{ *testing.M }

func (w whole) Run() int { return testenv.RunShared(w.M) }

// long lets the suite ask for sessions of minutes.
const long = "maxSessionTimeout=200000"

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(testenv.ZooKeeper(t, long)))
}

func TestTimedConformance(t *testing.T) {
	drivertest.RunTimed(t, harness(testenv.ZooKeeper(t, long)))
}

func harness(server *testenv.ZooKeeperServer) drivertest.Harness {
	return drivertest.Harness{
		TTL:   3 * time.Second, // of which a session trusts three fifths
		Names: testenv.Rounds(1000, 10_000),
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
		CannotRefuse: "a server that takes no writes (no quorum, a full disk, read-only mode) serves none of our sessions: see TestReadOnlyMode",
		CannotDamage: "what is on record is the names of nodes, which nobody can change, and their data only the session that made them; for latches see TestDamagedLatch",
		CannotForge:  "pushes are watches: the servers send them, for changes that only the session may make whose node it is; see TestSealedNodes",
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
	}
}

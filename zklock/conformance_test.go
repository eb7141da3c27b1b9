package zklock_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 2 * time.Second

// long lets the suite ask for sessions of minutes.
const long = "maxSessionTimeout=200000"

func TestConformance(t *testing.T) {
	conform(t, testenv.ZooKeeper(t, long), func(addr string) zklock.Config {
		return zklock.Config{Servers: []string{addr}}
	})
}

func conform(t *testing.T, server *testenv.ZooKeeperServer, config func(addr string) zklock.Config) {
	drivertest.Run(t, drivertest.Harness{
		TTL:        3 * time.Second,  // of which a session trusts three fifths
		RestartTTL: 10 * time.Second, // a JVM has to start
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			proxy := testenv.Proxy(t, server.Addr)
			b, err := zklock.New(config(proxy.Addr))
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
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
	})
}

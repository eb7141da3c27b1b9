package redislock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestConformanceReplicas: the contract holds when a replica has to confirm answers.
func TestConformanceReplicas(t *testing.T) {
	t.Parallel()
	rule := strings.Fields("--" + aclRule + " +wait +client|tracking")
	set := testenv.RedisReplicas(t, 1, append(rule, "--appendonly", "yes")...)
	set.Replicas[0].Do("CONFIG SET appendonly no") // it is not restarted
	var mu sync.Mutex
	var all []*redislock.Backend
	drivertest.Run(t, drivertest.Harness{
		TTL:    4 * ttl, // a replica may be slow for a third of it
		Only:   connected(),
		Refuse: refusalsOf([]*testenv.RedisServer{set.Primary}, "noreplicas", "oom"),
		Damage: damages(func(string) *testenv.RedisServer { return set.Primary }, tagOf),
		Forger: forger(func(string) *testenv.RedisServer { return set.Primary }, tagOf, false, false),
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			proxy := testenv.Proxy(t, set.Primary.Addr)
			conn := dialURL(t, "redis://holdfast:secret@"+proxy.Addr)
			b := redislock.New(conn, &redislock.Config{WaitReplicas: 1, WaitTimeout: 4 * ttl / 3})
			mu.Lock()
			all = append(all, b)
			mu.Unlock()
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
		Restart: func(t testing.TB) {
			t.Helper()
			set.Primary.Restart(true)
			set.InSync(set.Replicas[0], set.Primary)
			// A client has two connections here, and each learns of the restart when it is used.
			// The suite retries requests only, which use one of the two.
			mu.Lock()
			defer mu.Unlock()
			for _, b := range all {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, _ = b.Inspect(ctx, "x")
				cancel()
			}
			all = nil
		},
	})
}

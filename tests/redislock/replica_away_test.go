package redislock_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestReplicaAway: the only replica is away for a moment, so the server takes no writes. Waiters
// that ask again then, because they lost their subscription, keep their places. New requests are
// refused.
func TestReplicaAway(t *testing.T) {
	t.Parallel()
	for client, dial := range map[string]func(testing.TB, string) redislock.Conn{
		"rueidis": dialRueidis, "go-redis": plainGoRedis(false)} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			const waiters = 4
			set := testenv.RedisReplicas(t, 1, "--min-replicas-to-write", "1")
			b := redislock.New(dial(t, set.Primary.Addr), nil)
			t.Cleanup(func() { _ = b.Close() })
			ctx := within(t, time.Minute)
			c, err := holdfast.New(ctx, b, &holdfast.Config{TTL: long, Passes: -1})
			if err != nil {
				t.Fatal(err)
			}
			held, err := c.Mutex("x").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			turns := make(chan int, waiters)
			var failed atomic.Int32
			var group sync.WaitGroup
			for i := range waiters {
				group.Go(func() {
					l, err := c.Mutex("x").Lock(ctx)
					if err != nil {
						failed.Add(1)
						t.Errorf("waiter %d: %v", i, err)
						turns <- -1
						return
					}
					turns <- i
					if err := l.Release(); err != nil {
						t.Error(err)
					}
				})
				until(t, "one more waiter", func() bool {
					r, err := c.Inspect(ctx, "x")
					return err == nil && len(r.Waiters) == i+1
				})
			}

			set.Replicas[0].Do("REPLICAOF NO ONE")
			until(t, "the primary has no replica", func() bool {
				return set.Primary.Info("replication")["connected_slaves"] == "0"
			})
			refused := func() (n int) {
				_, _ = fmt.Sscanf(set.Primary.Info("errorstats")["errorstat_NOREPLICAS"], "count=%d", &n)
				return n
			}
			before := refused()
			set.Primary.Do("CLIENT KILL TYPE pubsub")
			until(t, "the waiters have asked in vain", func() bool { return refused() >= before+3*waiters || failed.Load() > 0 })
			if _, err := c.Mutex("new").Lock(ctx); !errors.Is(err, driver.ErrRefused) {
				t.Errorf("a new Lock without replicas: %v; want ErrRefused", err)
			}
			set.Follow(set.Replicas[0], set.Primary)
			if err := held.Release(); err != nil {
				t.Fatal(err)
			}
			for i := range waiters {
				if turn := <-turns; turn != i && turn >= 0 {
					t.Errorf("waiter %d had turn %d", turn, i)
				}
			}
			group.Wait() // Close would release the last one
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

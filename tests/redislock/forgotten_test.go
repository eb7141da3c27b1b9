package redislock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestForgottenPool: the network drops all connections of a pool without notice. A renewal must
// reach the server long before a lease of the default TTL expires: the client must not try the
// connections one after the other.
func TestForgottenPool(t *testing.T) {
	t.Parallel()
	for _, obedient := range []bool{false, true} {
		t.Run(map[bool]string{false: "defaults", true: "obedient"}[obedient], func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			proxy := testenv.Proxy(t, server.Addr)
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: obedient, PoolSize: 32})
			s := openSession(t, redislock.New(viaGoRedis(t, client), nil), 15*time.Second)
			r := exclusive("x")
			reply := acquire(t, s, r)
			h := driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}

			proxy.Delay(50 * time.Millisecond)
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() { _ = client.Ping(t.Context()).Err() })
			}
			all.Wait()
			proxy.Delay(0)
			if n := client.PoolStats().IdleConns; n < 16 {
				t.Fatalf("%d idle connections; want many", n)
			}
			proxy.Forget()
			for try := 1; ; try++ {
				changes, err := s.Renew(within(t, attempt), []driver.Hold{h})
				if err == nil {
					if len(changes) > 0 {
						t.Errorf("Renew = %+v", changes)
					}
					return
				}
				if try == 2 { // a third begins when the lease is about to end
					t.Fatalf("two renewals failed: %v", err)
				}
			}
		})
	}
}

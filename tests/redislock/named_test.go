package redislock_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// TestDamagedNameLikeAReply: the error of a damaged record contains its name, which reads like a
// server's error reply. No other call is harmed: rueidis keeps the shared connections, and in a
// Cluster no call waits for a slot.
func TestDamagedNameLikeAReply(t *testing.T) {
	t.Parallel()
	t.Run("READONLY", func(t *testing.T) {
		t.Parallel()
		server := testenv.Redis(t)
		counter := dialRueidis(t, server.Addr)
		t.Cleanup(func() { _ = counter.Close() })
		connections := func() int {
			t.Helper()
			for _, a := range redislock.Ask(within(t, soon), counter.(redislock.Asker), "INFO", "stats") {
				for line := range strings.Lines(a.Value.Text) {
					if n, ok := strings.CutPrefix(strings.TrimSpace(line), "total_connections_received:"); ok {
						count, err := strconv.Atoi(n)
						if err != nil {
							t.Fatal(err)
						}
						return count
					}
				}
			}
			t.Fatal("the server does not say")
			return 0
		}
		b := redislock.New(dialRueidis(t, server.Addr), nil)
		s := openSession(t, b, time.Minute)
		h := granted(t, s, exclusive("another"))
		const name = "READONLY"
		server.Do("SET hf:" + tagOf(name) + ":l:" + name + " junk")
		before := connections()
		for range 4 {
			if _, err := b.Inspect(within(t, soon), name); !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("%v; want ErrDamaged", err)
			}
			time.Sleep(1100 * time.Millisecond)
		}
		if n := connections() - before; n > 0 {
			t.Errorf("%d connections were made again", n)
		}
		if err := s.Release(within(t, soon), h, 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("ASK", func(t *testing.T) {
		t.Parallel()
		c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true})
		b := redislock.New(anonymousRueidis(t, c, testenv.Proxies(t, nil)), nil)
		openSession(t, b, time.Minute)
		const name = "TASK 7"
		server := c.Servers[c.Owner(tagOf(name), 0)]
		server.Do("SET \"hf:" + tagOf(name) + ":l:" + name + "\" junk")
		server.Do("CONFIG RESETSTAT")
		if _, err := b.Inspect(within(t, soon), name); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%v; want ErrDamaged", err)
		}
		stats := server.Info("commandstats")
		if strings.HasPrefix(stats["cmdstat_evalsha"]+stats["cmdstat_evalsha_ro"], "calls=1,") {
			return
		}
		t.Errorf("the server was asked more than once: %v", stats)
	})
}

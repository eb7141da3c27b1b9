package redislock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// BenchmarkWaitReplicas compares an uncontended acquire and release that one replica has to confirm
// with one that it need not, on the same primary and with the replica in sync.
func BenchmarkWaitReplicas(b *testing.B) {
	for _, client := range []string{"rueidis", "go-redis"} {
		dial := map[string]func(testing.TB, string) redislock.Conn{"rueidis": dialRueidis, "go-redis": dialGoRedis}[client]
		set := testenv.RedisReplicas(b, 1)
		var sessions [2]driver.Session
		for i := range sessions {
			table := redislock.New(dial(b, set.Primary.Addr), &redislock.Config{WaitReplicas: i})
			sessions[i] = openSession(b, table, 30*time.Second)
		}
		pair := func(s driver.Session) func(name, id string) error {
			ctx := context.Background()
			return func(name, id string) error {
				r, err := s.Acquire(ctx, &driver.Request{ID: id, Name: name, Mode: driver.Exclusive, N: 1, Wait: true})
				if err != nil {
					return err
				}
				return s.Release(ctx, driver.Hold{Name: name, ID: id, Token: r.Token}, 0)
			}
		}
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", client, n), func(b *testing.B) {
				const turns = 20 // so that other load affects both
				var took [2]time.Duration
				var times [2][]time.Duration
				for turn := range 2 * turns {
					start := time.Now()
					times[turn%2] = append(times[turn%2], pairs(b, n, b.N/turns+1, pair(sessions[turn%2]))...)
					took[turn%2] += time.Since(start)
				}
				var p50, p99, rate [2]float64
				for i := range times {
					slices.Sort(times[i])
					p50[i] = float64(times[i][len(times[i])/2].Nanoseconds()) / 1e3
					p99[i] = float64(times[i][len(times[i])*99/100].Nanoseconds()) / 1e3
					rate[i] = float64(len(times[i])) / took[i].Seconds()
				}
				b.ReportMetric(p50[1], "p50-µs")
				b.ReportMetric(p50[1]/p50[0], "p50-ratio")
				b.ReportMetric(p99[1]/p99[0], "p99-ratio")
				b.ReportMetric(rate[1]/rate[0], "rate-ratio")
				b.ReportMetric(float64(times[1][len(times[1])-1].Microseconds()), "max-µs")
			})
		}
	}
}

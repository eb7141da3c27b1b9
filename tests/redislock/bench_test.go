package redislock_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// BenchmarkPair compares an uncontended acquire and release with the least that any lock in Redis
// needs: SET NX PX and a script that compares and deletes, on the same client.
func BenchmarkPair(b *testing.B) {
	client := rawClient(b, testenv.Existing(b))
	s := openSession(b, redislock.New(rueidisconn.New(client), nil), 30*time.Second)
	del := rueidis.NewLuaScript(`if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0`)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	ctx = driver.OwnBound(ctx) // as package holdfast bounds an exchange
	raw := func(name, id string) error {
		if err := client.Do(ctx, client.B().Set().Key(name).Value(id).Nx().PxMilliseconds(30000).Build()).
			Error(); err != nil {
			return err
		}
		return del.Exec(ctx, client, []string{name}, []string{id}).Error()
	}
	lock := func(name, id string) error {
		req := driver.Request{ID: id, Name: name, Mode: driver.Exclusive, N: 1, Wait: true}
		r, err := s.Acquire(ctx, &req)
		if err != nil {
			return err
		}
		return s.Release(ctx, driver.Hold{Name: name, ID: id, Token: r.Token}, 0)
	}
	for _, n := range []int{1, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			// The two alternate, so that other load on the machine affects both.
			const turns = 20
			var took [2]time.Duration
			var times [2][]time.Duration
			for turn := range 2 * turns {
				pair := []func(name, id string) error{raw, lock}[turn%2]
				start := time.Now()
				times[turn%2] = append(times[turn%2], pairs(b, n, b.N/turns+1, pair)...)
				took[turn%2] += time.Since(start)
			}
			var p50, rate [2]float64
			for i := range times {
				slices.Sort(times[i])
				p50[i] = float64(times[i][len(times[i])/2].Nanoseconds()) / 1e3
				rate[i] = float64(len(times[i])) / took[i].Seconds()
			}
			b.ReportMetric(p50[0], "raw-p50-µs")
			b.ReportMetric(p50[1], "p50-µs")
			b.ReportMetric(p50[1]/p50[0], "p50-ratio")
			b.ReportMetric(rate[0], "raw-pairs/s")
			b.ReportMetric(rate[1], "pairs/s")
			b.ReportMetric(rate[1]/rate[0], "rate-ratio")
		})
	}
	b.Run("allocations", func(b *testing.B) {
		b.ReportAllocs()
		pairs(b, 1, b.N, lock)
	})
}

// pairs makes n goroutines on as many names do count pairs between them.
func pairs(b *testing.B, n, count int, pair func(name, id string) error) []time.Duration {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(count))
	times := make([][]time.Duration, n)
	for g := range n {
		all.Go(func() {
			name, id := "bench/"+strconv.Itoa(g), "c0ffee0123456789abcdef0123456789-"+strconv.Itoa(g)
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := pair(name, id); err != nil {
					b.Error(err)
					return
				}
				times[g] = append(times[g], time.Since(start))
			}
		})
	}
	all.Wait()
	return slices.Concat(times...)
}

func openSession(t testing.TB, b *redislock.Backend, ttl time.Duration) driver.Session {
	t.Helper()
	t.Cleanup(func() { _ = b.Close() })
	s, err := b.Open(context.Background(), driver.SessionConfig{ID: newID(), TTL: ttl, Info: "{}"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

var ids atomic.Int64

// newID returns a name that no other test uses, even on a shared server.
func newID() string {
	return strings.ToLower(strconv.FormatInt(time.Now().UnixNano(), 36)) + strconv.FormatInt(ids.Add(1), 36)
}

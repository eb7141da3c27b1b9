package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/observe"
)

// BenchmarkPair measures what holdfast itself costs for a free lock: the store is in memory.
func BenchmarkPair(b *testing.B) { benchmarkPair(b, nil) }

// BenchmarkPairObserved is BenchmarkPair with what Config has for observation.
func BenchmarkPairObserved(b *testing.B) {
	for name, cfg := range map[string]*holdfast.Config{
		"profile": {Profiles: observe.Profiles()},
		"ends": {Observer: &holdfast.Observer{
			WaitEnded:  func(context.Context, holdfast.WaitEnd) {},
			LeaseEnded: func(holdfast.LeaseEnd) {},
		}},
		"exchanges": {Observer: &holdfast.Observer{Exchanged: func(holdfast.Exchange) {}}},
		"none":      {Observer: &holdfast.Observer{Lost: func(string, uint64, holdfast.Reason) {}}},
	} {
		b.Run(name, func(b *testing.B) { benchmarkPair(b, cfg) })
	}
}

func benchmarkPair(b *testing.B, cfg *holdfast.Config) {
	m := client(b, memlock.New(), cfg).Mutex("x")
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSticky measures what a Lock and a Release of an idle grant cost. cpu-ns/op is the time of the
// processors, on a machine that others use as well.
func BenchmarkSticky(b *testing.B) {
	for _, goroutines := range []int{1, 128} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			m := client(b, memlock.New(), nil).Mutex("x", holdfast.Sticky(time.Minute))
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			for range goroutines {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						l, err := m.Lock(context.Background())
						if err != nil {
							b.Error(err)
							return
						}
						if err := l.Release(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

package holdfast_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// BenchmarkWaiting measures what each of 10,000 calls of one client costs that wait for one lock: in
// bytes of the heap, without the stacks of their goroutines.
func BenchmarkWaiting(b *testing.B) {
	for _, cfg := range []struct {
		name   string
		passes int
	}{{"passes", 0}, {"none", -1}} {
		b.Run(cfg.name, func(b *testing.B) {
			const n = 10_000
			for b.Loop() {
				c := client(b, memlock.New(), &holdfast.Config{Passes: cfg.passes})
				m := c.Mutex("x")
				held := lock(b, c, "x")
				heap := func() uint64 {
					var m runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&m)
					return m.HeapAlloc
				}
				before := heap()
				var all sync.WaitGroup
				for range n {
					all.Go(func() {
						l, err := m.Lock(context.Background())
						if err != nil {
							b.Error(err)
							return
						}
						if err := l.Release(); err != nil {
							b.Error(err)
						}
					})
				}
				for c.Health().Waiting < n && !b.Failed() {
					time.Sleep(time.Millisecond)
				}
				after := heap()
				began := time.Now()
				if err := held.Release(); err != nil {
					b.Error(err)
				}
				all.Wait()
				b.ReportMetric(float64(time.Since(began))/n, "ns/turn")
				b.ReportMetric(float64(after-before)/n, "B/waiter")
			}
		})
	}
}

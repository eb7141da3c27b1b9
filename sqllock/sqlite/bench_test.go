package sqlite

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// BenchmarkSQLitePair measures an uncontended acquire and release, with their medians.
func BenchmarkSQLitePair(b *testing.B) {
	for _, bm := range []struct {
		name string
		req  *driver.Request
	}{
		{"exclusive", exclusive("bench")},
		{"permit", permits("bench-permit", 1, 4)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := openTestSession(b, openTest(b, storePath(b), nil), time.Minute)
			ctx := context.Background()
			var acquire, release []time.Duration
			for b.Loop() {
				start := time.Now()
				rep, err := s.Acquire(ctx, bm.req)
				if err != nil || rep.Token == 0 {
					b.Fatal(rep, err)
				}
				mid := time.Now()
				if err := s.Release(ctx, holdOf(bm.req, rep.Token), 0); err != nil {
					b.Fatal(err)
				}
				acquire, release = append(acquire, mid.Sub(start)), append(release, time.Since(mid))
			}
			b.ReportMetric(quantile(acquire, 0.5), "acquire-p50-µs")
			b.ReportMetric(quantile(release, 0.5), "release-p50-µs")
			b.ReportMetric(quantile(acquire, 0.99), "acquire-p99-µs")
		})
	}
}

func quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return float64(d[int(q*float64(len(d)-1))].Nanoseconds()) / 1000
}

// BenchmarkSQLiteContended measures a release with a hand-over, and joining the queue.
func BenchmarkSQLiteContended(b *testing.B) {
	st := openTest(b, storePath(b), nil)
	s := [2]*session{openTestSession(b, st, time.Minute), openTestSession(b, st, time.Minute)}
	h := granted(b, s[0], exclusive("x"))
	ctx := context.Background()
	var join, release []time.Duration
	for i := 0; b.Loop(); i++ {
		next := exclusive("x")
		start := time.Now()
		rep, err := s[(i+1)%2].Acquire(ctx, next)
		mid := time.Now()
		if err != nil || rep.Wake == nil {
			b.Fatal(rep, err)
		}
		if err := s[i%2].Release(ctx, h, 0); err != nil {
			b.Fatal(err)
		}
		join, release = append(join, mid.Sub(start)), append(release, time.Since(mid))
		h = holdOf(next, <-rep.Wake)
	}
	b.ReportMetric(quantile(join, 0.5), "join-p50-µs")
	b.ReportMetric(quantile(release, 0.5), "release-p50-µs")
	b.ReportMetric(quantile(release, 0.99), "release-p99-µs")
}

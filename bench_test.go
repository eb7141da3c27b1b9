package holdfast_test

import (
	"context"
	"testing"

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

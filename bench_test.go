package holdfast_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/memlock"
)

// BenchmarkPair measures what holdfast itself costs for a free lock: the store is in memory.
func BenchmarkPair(b *testing.B) {
	m := client(b, memlock.New(), nil).Mutex("x")
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

package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A quantile differs from the exact one by less than the width of a bucket.
func TestHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || len(h.Bars(10)) != 0 {
		t.Error("an empty histogram has values")
	}
	const n = 100_000
	for i := range n {
		h.Record(time.Duration(i+1) * time.Microsecond)
	}
	var o Histogram
	o.Record(time.Hour)
	h.Merge(&o)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99} {
		want := q * n * float64(time.Microsecond)
		if got := float64(h.Quantile(q)); math.Abs(got-want)/want > 0.01 {
			t.Errorf("quantile %v: %v, want %v", q, time.Duration(got), time.Duration(want))
		}
	}
	if h.Quantile(1) != time.Hour || h.Max != time.Hour {
		t.Errorf("the longest is %v", h.Max)
	}
	for _, perDecade := range []int{1, 3, 20} {
		sum, bars := uint64(0), h.Bars(perDecade)
		for i, b := range bars {
			sum += b.N
			if b.From >= b.To || i > 0 && b.From != bars[i-1].To {
				t.Errorf("bar %d of %v", i, bars)
			}
		}
		if sum != n+1 || bars[0].N == 0 || bars[len(bars)-1].N != 1 || bars[len(bars)-1].To < time.Hour {
			t.Errorf("%d in %v", sum, bars)
		}
	}
}

// Very short and negative durations count, as do those that are longer than all buckets.
func TestHistogramEnds(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{-1, 0, 1, math.MaxInt64} {
		h.Record(d)
	}
	if sum := h.Bars(1); h.N != 4 || h.Quantile(0) != 0 || len(sum) == 0 {
		t.Errorf("%d, %v", h.N, sum)
	}
}

func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var a, b Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(r.Float64() * 25)) // 1 ns to 72 s
		all = append(all, d)
		if i%2 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	a.Merge(&b)
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999} {
		want, got := float64(all[int(q*float64(len(all)))]), float64(a.Quantile(q))
		if math.Abs(got-want) > 0.01*want+1 {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if a.Max != all[len(all)-1] || a.N != uint64(len(all)) {
		t.Errorf("max %v, n %d", a.Max, a.N)
	}
	if n := testing.AllocsPerRun(100, func() { a.Record(time.Millisecond) }); n != 0 {
		t.Errorf("recording allocates %v times", n)
	}
}

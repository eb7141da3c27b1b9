package bench

import (
	"math"
	"testing"
	"time"
)

// A quantile differs from the exact one by less than the width of a bucket.
func TestHistogram(t *testing.T) {
	var h Histogram
	if h.quantile(0.5) != 0 || len(h.Bars(10)) != 0 {
		t.Error("an empty histogram has values")
	}
	const n = 100_000
	for i := range n {
		h.record(time.Duration(i+1) * time.Microsecond)
	}
	var o Histogram
	o.record(time.Hour)
	h.merge(&o)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99} {
		want := q * n * float64(time.Microsecond)
		if got := float64(h.quantile(q)); math.Abs(got-want)/want > 0.01 {
			t.Errorf("quantile %v: %v, want %v", q, time.Duration(got), time.Duration(want))
		}
	}
	if h.quantile(1) != time.Hour || h.max != time.Hour {
		t.Errorf("the longest is %v", h.max)
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
		h.record(d)
	}
	if sum := h.Bars(1); h.n != 4 || h.quantile(0) != 0 || len(sum) == 0 {
		t.Errorf("%d, %v", h.n, sum)
	}
}

func TestFigures(t *testing.T) {
	if m := median(nil); m != 0 {
		t.Error(m)
	}
	if m := median([]float64{9, 1, 2}); m != 2 {
		t.Error(m)
	}
	if m := median([]float64{4, 1, 2, 9}); m != 3 {
		t.Error(m)
	}
	if s := spread([]float64{10, 8, 11}); math.Abs(s-0.2) > 1e-9 {
		t.Error(s)
	}
	if j := jain([]int{5, 5, 5, 5}); math.Abs(j-1) > 1e-9 {
		t.Error(j)
	}
	if j := jain([]int{7, 0, 0, 0}); math.Abs(j-0.25) > 1e-9 {
		t.Error(j)
	}
	if j := jain([]int{0, 0}); j != 0 {
		t.Error(j)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 999: "999 ns", 1000: "1.00 µs", 9996: "10.0 µs", 99_960: "100 µs", 999_600: "1.00 ms",
		1_234_000: "1.23 ms", 12 * time.Second: "12.0 s", time.Hour: "3600 s",
	} {
		if got := span(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := whole(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{1: "100%", 0.0999: "10%", 0.012: "1.2%", 0.0005: "0.05%", 1e-9: "<0.01%"} {
		if got := percent(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

package bench

import (
	"math"
	"testing"
	"time"
)

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

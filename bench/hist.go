package main

import "github.com/holdfast-lock/holdfast/internal/histogram"

type hist = histogram.Histogram

// p50p99 adds the two quantiles of h to m, in nanoseconds.
func (m metrics) p50p99(prefix string, h *hist) {
	m[prefix+"p50"] = float64(h.Quantile(0.50))
	m[prefix+"p99"] = float64(h.Quantile(0.99))
}

package main

import (
	"math/bits"
	"time"
)

// hist counts durations in buckets less than 1 % wide. Recording allocates no memory, and the
// memory does not grow with the number of samples. It is not safe for concurrent use.
type hist struct {
	buckets [48 << subBits]uint32
	n       uint64
	max     time.Duration
}

const subBits = 7 // 128 buckets for each doubling

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	i := (shift+1)<<subBits + int(v>>shift) - 1<<subBits
	return min(i, len(hist{}.buckets)-1)
}

// middle returns the value that represents bucket i.
func middle(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	low := uint64(i&(1<<subBits-1)+1<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}

func (h *hist) record(d time.Duration) {
	h.buckets[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

func (h *hist) merge(o *hist) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile returns the value below which the share q of the samples lies; 0 without samples.
func (h *hist) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.n))
	seen := uint64(0)
	for i, n := range h.buckets {
		seen += uint64(n)
		if n > 0 && seen > rank {
			return middle(i)
		}
	}
	return h.max
}

// p50p99 adds the two quantiles of h to m, in nanoseconds.
func (m metrics) p50p99(prefix string, h *hist) {
	m[prefix+"p50"] = float64(h.quantile(0.50))
	m[prefix+"p99"] = float64(h.quantile(0.99))
}

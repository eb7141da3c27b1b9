// Package histogram counts durations for benchmarks, and shows their distribution.
package histogram

import (
	"math"
	"math/bits"
	"time"
)

// subBits makes 128 buckets for each doubling, so a bucket is less than 1 % wide.
const subBits = 7

// Histogram counts durations. Recording allocates no memory, and the memory does not grow with the
// number of durations. It is not safe for concurrent use.
type Histogram struct {
	buckets [48 << subBits]uint32
	N       uint64        // how many were recorded
	Max     time.Duration // the longest
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return min((shift+1)<<subBits+int(v>>shift)-1<<subBits, len(Histogram{}.buckets)-1)
}

// middle returns the duration that represents a bucket.
func middle(bucket int) time.Duration {
	if bucket < 1<<subBits {
		return time.Duration(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket&(1<<subBits-1)+1<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// Record counts d. A negative d counts as 0.
func (h *Histogram) Record(d time.Duration) {
	h.buckets[bucket(d)]++
	h.N++
	h.Max = max(h.Max, d)
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.N += o.N
	h.Max = max(h.Max, o.Max)
}

// Quantile returns the duration below which the share q of all lies; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank, seen := uint64(q*float64(h.N)), uint64(0)
	for i, n := range h.buckets {
		if seen += uint64(n); n > 0 && seen > rank {
			return min(middle(i), h.Max)
		}
	}
	return h.Max
}

// Bar is a part of a distribution: how many durations are from From up to To.
type Bar struct {
	From, To time.Duration
	N        uint64
}

// Bars returns the distribution in parts that are equally wide on a logarithmic scale, perDecade of
// them for each power of ten. They go from the shortest duration to the longest, without a gap.
func (h *Histogram) Bars(perDecade int) (all []Bar) {
	at := func(d time.Duration) int {
		return int(math.Floor(math.Log10(float64(max(d, 1))) * float64(perDecade)))
	}
	edge := func(i int) time.Duration {
		return time.Duration(math.Round(math.Pow(10, float64(i)/float64(perDecade))))
	}
	first := 0
	for i, n := range h.buckets {
		if n == 0 {
			continue
		}
		k := at(middle(i))
		if all == nil {
			first = k
		}
		for len(all) <= k-first {
			next := first + len(all)
			all = append(all, Bar{From: edge(next), To: edge(next + 1)})
		}
		all[k-first].N += uint64(n)
	}
	return all
}

package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/driver"
)

// million is a good history of a million grants of exclusive locks under 16 names.
func million(b *testing.B, plain bool) []Event {
	const names, grants = 16, 1_000_000
	rng := rand.New(rand.NewPCG(3, 4))
	var events []Event
	for i := range names {
		m := &making{mode: driver.Exclusive, clients: 8, grants: grants / names, name: fmt.Sprint("lock", i), plain: plain}
		events = append(events, m.make(rng)...)
	}
	Sort(events)
	events = slices.Clip(events)
	runtime.GC()
	return events
}

// BenchmarkCheck judges a million grants: acquire, granted, release, released and, after a wait,
// queued. The memory is what Check needs in addition to the events.
func BenchmarkCheck(b *testing.B) {
	events := million(b, true)
	for name, o := range map[string]Options{"sweeps": {Windows: 1}, "zero options": {}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := Check(events, o); r.Outcome != Clean {
					b.Fatal(r)
				}
			}
			b.ReportMetric(float64(len(events)), "events")
			b.ReportMetric(live(func() any { return Check(events, o) }), "MiB-kept")
			b.ReportMetric(float64(len(events))*float64(eventSize)/(1<<20), "MiB-events")
		})
	}
}

// live returns how much memory the result of f keeps alive.
func live(f func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
}

func BenchmarkRead(b *testing.B) {
	var buf bytes.Buffer
	r := NewRecorder(&buf)
	m := &making{mode: driver.Exclusive, clients: 8, grants: 20_000, name: "x"}
	events := m.make(rand.New(rand.NewPCG(3, 4)))
	for _, e := range events {
		r.Record(e)
	}
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		if got, err := ReadAll(bytes.NewReader(buf.Bytes())); err != nil || len(got) != len(events) {
			b.Fatal(len(got), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
}

// BenchmarkPorcupine checks a window of 10,000 operations, legal or with one grant inside a lease.
func BenchmarkPorcupine(b *testing.B) {
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Permits} {
		for _, clients := range []int{16, 256} {
			for _, legal := range []bool{true, false} {
				b.Run(fmt.Sprintf("%s/%d clients/legal=%v", modeNames[mode], clients, legal), func(b *testing.B) {
					m := &making{mode: mode, clients: clients, grants: 5000, name: "x", plain: true, writerIn: 4}
					events := m.make(rand.New(rand.NewPCG(5, 6)))
					if !legal { // the hold in the middle lasts into the next writer's
						d := &damaged{rand.New(rand.NewPCG(5, 6)), events}
						if mode == driver.Permits {
							d.at("x-2500", Acquire).Limit, d.at("x-2500", Acquire).N = 2, 2
						} else {
							i := 2500
							for d.at(fmt.Sprint("x-", i), Acquire).Mode != driver.Exclusive {
								i++
							}
							d.at(fmt.Sprint("x-", i-1), Release).T = d.at(fmt.Sprint("x-", i), Granted).T + 1
							d.at(fmt.Sprint("x-", i-1), Released).T = d.at(fmt.Sprint("x-", i), Granted).T + 2
						}
					}
					Sort(events)
					c := &checker{Options: Options{}.withDefaults(), table: newTable(events)}
					list, _ := c.ordered(0)
					want := porcupine.Ok
					if !legal {
						want = porcupine.Illegal
					}
					var ws []*window
					c.windows(list, func(int) bool { return true }, func(w *window) { ws = append(ws, w) })
					for b.Loop() {
						for _, w := range ws {
							if r := porcupine.CheckOperationsTimeout(w.model(), w.ops, 20*time.Second); r != want {
								if len(ws) == 1 || r == porcupine.Unknown {
									b.Fatal(r)
								}
							}
						}
					}
					b.ReportMetric(float64(len(ws[0].ops)), "ops")
				})
			}
		}
	}
}

const eventSize = unsafe.Sizeof(Event{})

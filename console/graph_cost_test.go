package console

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// What clients write must not keep the console busy: layers of readers, each of which waits for all of
// the layer above, once cost a multiple for each layer.
func TestGraphCost(t *testing.T) {
	var lines []string
	const layers, readers = 8, 30
	for i := range layers {
		var b strings.Builder
		fmt.Fprintf(&b, "n%d:", i)
		for j := range readers {
			fmt.Fprintf(&b, " r-p%d-%d", i, j)
		}
		b.WriteString(" |")
		for j := range readers {
			fmt.Fprintf(&b, " p%d-%d", i+1, j)
		}
		lines = append(lines, strings.ReplaceAll(b.String(), " p", " r-p"))
	}
	many := "m: r-first"
	for i := range 5000 {
		many += fmt.Sprint(" r-m", i)
	}
	many += " |"
	for i := range 100 {
		many += fmt.Sprint(" w", i)
	}
	lines = append(lines, many, "back: w0 | first") // a deadlock through one of many readers
	records := build(t, time.Minute, lines...)
	done := make(chan *graph)
	go func() {
		g := newGraph(records, time.Now())
		for _, root := range g.roots {
			budget := 200
			root.branch(nil, time.Now(), map[*party]bool{}, &budget, 0)
		}
		done <- g
	}()
	select {
	case g := <-done:
		if len(g.knots) != 1 || len(g.knots[0].parties) < 2 {
			t.Errorf("%d knots", len(g.knots))
		}
	case <-time.After(5 * time.Minute): // it takes seconds; the multiple of each layer would take years
		t.Fatal("the graph has taken five minutes")
	}
}

// The parties that are stuck are those that a plain search finds.
func TestStuckParties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := 0
	for range 3000 {
		var lines []string
		for i := range 1 + r.IntN(5) {
			name, mark := fmt.Sprint("n", i), ""
			switch r.IntN(3) {
			case 0:
				name += fmt.Sprint("/", 1+r.IntN(4))
			case 1:
				mark = "r-"
			}
			line := name + ":"
			for range 1 + r.IntN(3) {
				line += fmt.Sprint(" ", mark, "p", r.IntN(6))
			}
			line += " |"
			for range r.IntN(4) {
				line += fmt.Sprint(" ", []string{"", mark}[r.IntN(2)], "p", r.IntN(6))
			}
			lines = append(lines, line)
		}
		records := build(t, time.Minute, lines...)
		want := stuckPlainly(records)
		g := newGraph(records, time.Now())
		got := []string{}
		for k, p := range g.parties {
			if p.stuck {
				got = append(got, k)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %q are stuck, want %q", lines, got, want)
		}
		some += len(want)
	}
	if some < 500 {
		t.Errorf("only %d parties were stuck", some)
	}
}

// stuckPlainly returns the keys of the parties that are stuck: it takes away those that can go on, until
// there are none.
func stuckPlainly(records []holdfast.Record) []string {
	stuck := map[string]bool{}
	for i := range records {
		for j := range records[i].Waiters {
			stuck[keyOf(&records[i].Waiters[j])] = true
		}
	}
	var blocked func(r *holdfast.Record, i int) bool
	blocked = func(r *holdfast.Record, i int) bool {
		w := &r.Waiters[i]
		used, free, inTheWay := 0, 0, false
		for j := range r.Holders {
			h := &r.Holders[j]
			used += h.Permits
			if own := keyOf(h) == keyOf(w); own || !stuck[keyOf(h)] {
				free += h.Permits
			} else {
				inTheWay = true
			}
		}
		if r.Kind == "semaphore" {
			inTheWay = free < w.Permits-(r.Limit-used)
		}
		before := i - 1
		for before >= 0 && w.Shared && r.Waiters[before].Shared {
			before--
		}
		return inTheWay || before >= 0 && blocked(r, before)
	}
	for changed := true; changed; {
		changed = false
		for k := range stuck {
			waits := false
			for i := range records {
				for j := range records[i].Waiters {
					waits = waits || keyOf(&records[i].Waiters[j]) == k && blocked(&records[i], j)
				}
			}
			if !waits {
				delete(stuck, k)
				changed = true
			}
		}
	}
	return slices.Sorted(maps.Keys(stuck))
}

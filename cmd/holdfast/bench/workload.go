package bench

import (
	"fmt"
	"regexp"
	"strings"
)

// exchange is the row of the floor: what the cheapest exchange with the store costs.
const exchange = "exchange"

// workload says who takes which locks. Each loop takes one lock and releases it, again and again.
type workload struct {
	name, title string
	clients     int // each with a session of its own
	loops       int // goroutines, spread over the clients
	names       int // that the loops take, spread over them; 0: none, the loops only read
}

// contended reports whether several loops want the same name.
func (w *workload) contended() bool { return w.names > 0 && w.loops > w.names }

// workloads lists all workloads in the order of the output. The floor is the first.
func workloads() []workload {
	const loops = 64
	all := []workload{
		{exchange, "one read of a name that is not in use, one goroutine", 0, 1, 0},
		{"pair", "Lock and Release of one name, one goroutine", 1, 1, 1},
		{fmt.Sprintf("names/%d", loops), fmt.Sprintf("Lock and Release, %d goroutines of one client on %[1]d names", loops), 1,
			loops, loops},
	}
	for _, n := range []int{2, 16} {
		all = append(all, workload{fmt.Sprintf("one/%d", n),
			fmt.Sprintf("the hand-over of one name among %d clients", n), n, n, 1})
	}
	const goroutines = 128
	return append(all, workload{fmt.Sprintf("one/%d-goroutines", goroutines),
		fmt.Sprintf("the hand-over of one name among %d goroutines of one client", goroutines), 1, goroutines, 1})
}

// Names returns the names of all workloads, in the order of the output.
func Names() (names []string) {
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

// chosen returns the workloads whose names match, and the floor, which the others are compared with.
func chosen(scenario *regexp.Regexp) (some []workload) {
	for _, w := range workloads() {
		if w.name == exchange || scenario == nil || scenario.MatchString(w.name) {
			some = append(some, w)
		}
	}
	return some
}

// Matches reports whether a workload has a name that scenario matches.
func Matches(scenario *regexp.Regexp) bool {
	for _, name := range Names() {
		if scenario.MatchString(name) {
			return true
		}
	}
	return false
}

// benchmark returns the name of a workload as that of a Go benchmark.
func benchmark(name string) string { return "Benchmark" + strings.ToUpper(name[:1]) + name[1:] }

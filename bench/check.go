package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// target is one promise about the medians.
type target struct {
	text  string
	value figure
	least bool // the value must be at least the limit, not at most
	limit figure
	show  func(float64) string // nil: a plain number
}

// The libraries of the targets. holdfast-goredis has no targets of its own.
const (
	ours, floor   = "holdfast-rueidis", "raw-rueidis"
	oursSQLite    = "holdfast-sqlite"
	oursZooKeeper = "holdfast-zookeeper"
)

// targets is the list for -check.
var targets = slices.Concat(zooKeeperTargets(), sqlTargets(), quorumTargets(), namesTargets(), []target{
	{text: "pair: commands", value: of("pair", ours, "sent"), limit: number(2)},
	{text: "pair: p50, against 1.15 of the raw commands'", value: of("pair", ours, "p50"),
		limit: times(1.15, of("pair", floor, "p50")), show: showDuration},
	{text: "pair: allocations", value: of("pair", ours, "allocs"), limit: number(12)},

	{text: "one/128: commands per acquisition", value: of("one/128", ours, "sent"), limit: number(2.1)},
	{text: "one/128: hand-over p50, against the best peer", value: of("one/128", ours, "p50"),
		limit: bestPeer("one/128", "p50", math.Min), show: showDuration},
	{text: "one/128: hand-over p99, against the best peer", value: of("one/128", ours, "p99"),
		limit: bestPeer("one/128", "p99", math.Min), show: showDuration},
	{text: "one/128: hand-over p50, against two PINGs", value: of("one/128", ours, "p50"),
		limit: times(2, of("ping", floor, "p50")), show: showDuration},
	{text: "one/128: Jain index", value: of("one/128", ours, "jain"), least: true, limit: number(0.99)},
	{text: "one/128: longest wait, against a tenth of the best peer's", value: of("one/128", ours, "waitmax"),
		limit: times(0.1, bestPeer("one/128", "waitmax", math.Min)), show: showDuration},

	{text: "held: commands/s", value: of("held", ours, "sentps"), limit: number(10)},
	{text: "held: extra goroutines", value: of("held", ours, "goroutines"), limit: number(4)},
	{text: "held: heap bytes per lease", value: of("held", ours, "heap"), limit: number(1024)},

	{text: "sqlite: pair p50", value: of("sqlite/pair", oursSQLite, "p50"), limit: number(100e3), show: showDuration},
	{text: "sqlite: hand-over p50, 2 processes, 2 ms of work", value: of("sqlite/2-work", oursSQLite, "p50"),
		limit: number(350e3), show: showDuration},
	{text: "sqlite: hand-over p99, 2 processes, 2 ms of work", value: of("sqlite/2-work", oursSQLite, "p99"),
		limit: number(1e6), show: showDuration},
	{text: "sqlite: out of order, 2 processes, 2 ms of work", value: of("sqlite/2-work", oursSQLite, "overtaken"),
		limit: number(0)},
	{text: "sqlite: hand-over p50, 32 processes, 2 ms of work", value: of("sqlite/32-work", oursSQLite, "p50"),
		limit: number(350e3), show: showDuration},
	{text: "sqlite: hand-over p99, 32 processes, 2 ms of work", value: of("sqlite/32-work", oursSQLite, "p99"),
		limit: number(1e6), show: showDuration},
	{text: "sqlite: out of order, 32 processes, 2 ms of work", value: of("sqlite/32-work", oursSQLite, "overtaken"),
		limit: number(0)},
	{text: "sqlite: idle waiter, percent of a core", value: of("sqlite/idle", oursSQLite, "idle"), limit: number(0.5)},

	{text: "scale: server time per grant, 5,000 waiters, against twice that with 10",
		value: of("scale/line", ours+"/5000", "scripts"), limit: times(2, of("scale/line", ours+"/10", "scripts")),
		show: showDuration},
	{text: "scale: commands per grant, 5,000 waiters, against 10", value: of("scale/line", ours+"/5000", "sent"),
		limit: of("scale/line", ours+"/10", "sent")},
	{text: "scale: the same with those in scripts", value: of("scale/line", ours+"/5000", "calls"),
		limit: of("scale/line", ours+"/10", "calls")},
	{text: "scale: server time per grant, 10,000 permits, against twice that with 10",
		value: of("scale/permits", ours+"/10000", "scripts"), limit: times(2, of("scale/permits", ours+"/10", "scripts")),
		show: showDuration},
	{text: "scale: server time per grant, 1,000 readers, against twice that with 10",
		value: of("scale/readers", ours+"/1000", "scripts"), limit: times(2, of("scale/readers", ours+"/10", "scripts")),
		show: showDuration},
	{text: "scale: longest wait of a writer, 1,000 readers, against twice their longest hold",
		value: of("scale/readers", ours+"/1000", "writemax"), limit: times(2, of("scale/readers", ours+"/1000", "hold")),
		show: showDuration},
	{text: "scale, sqlite: CPU per grant, 5,000 waiters, against twice that with 10",
		value: of("scale/line-sqlite", oursSQLite+"/5000", "cpu"),
		limit: times(2, of("scale/line-sqlite", oursSQLite+"/10", "cpu")), show: showDuration},
	{text: "scale, sqlite: CPU per grant, 10,000 permits, against twice that with 10",
		value: of("scale/permits-sqlite", oursSQLite+"/10000", "cpu"),
		limit: times(2, of("scale/permits-sqlite", oursSQLite+"/10", "cpu")), show: showDuration},
	{text: "scale, sqlite: CPU per grant, 1,000 readers, against twice that with 10",
		value: of("scale/readers-sqlite", oursSQLite+"/1000", "cpu"),
		limit: times(2, of("scale/readers-sqlite", oursSQLite+"/10", "cpu")), show: showDuration},
	{text: "scale, sqlite: longest wait of a writer, 1,000 readers, against twice their longest hold",
		value: of("scale/readers-sqlite", oursSQLite+"/1000", "writemax"),
		limit: times(2, of("scale/readers-sqlite", oursSQLite+"/1000", "hold")), show: showDuration},

	{text: "cli: added time", value: of("cli", "holdfast-cli", "added"), limit: number(15e6), show: showDuration},
})

func namesTargets() (all []target) {
	for _, n := range nameCounts {
		name := fmt.Sprintf("names/%d", n)
		all = append(all,
			target{text: name + ": pairs/s, against 0.85 of the raw commands'", value: of(name, ours, "persec"), least: true,
				limit: times(0.85, of(name, floor, "persec")), show: showNumber},
			target{text: name + ": pairs/s, against the best peer", value: of(name, ours, "persec"), least: true,
				limit: bestPeer(name, "persec", math.Max), show: showNumber},
			target{text: name + ": p50, against the best peer", value: of(name, ours, "p50"),
				limit: bestPeer(name, "p50", math.Min), show: showDuration},
			target{text: name + ": p99, against the best peer", value: of(name, ours, "p99"),
				limit: bestPeer(name, "p99", math.Min), show: showDuration})
	}
	return all
}

func zooKeeperTargets() (all []target) {
	for _, servers := range []string{"zk1", "zk3"} {
		add := func(scenario, key, what string, limit figure) {
			all = append(all, target{text: servers + scenario + ": " + what, value: of(servers+scenario, oursZooKeeper, key),
				limit: limit, show: showDuration})
		}
		add("/pair", "p50", "p50, against 0.85 of zk.Lock's", times(0.85, of(servers+"/pair", goZooKeeperName, "p50")))
		for _, scenario := range []string{"/one/2", "/one/16", "/one/128"} {
			add(scenario, "p50", "hand-over p50, against 0.9 of the better peer's",
				times(0.9, betterZooKeeper(servers+scenario, "p50")))
			add(scenario, "p99", "hand-over p99, against the better peer's", betterZooKeeper(servers+scenario, "p99"))
		}
	}
	return all
}

// betterZooKeeper returns the smaller median of zk.Lock and Curator; both must have been measured.
func betterZooKeeper(scenario, key string) figure {
	return func(r *report) float64 {
		return math.Min(of(scenario, goZooKeeperName, key)(r), of(scenario, curatorName, key)(r))
	}
}

// figure finds a number in a report; NaN if it was not measured.
type figure func(*report) float64

func number(v float64) figure { return func(*report) float64 { return v } }

func times(k float64, f figure) figure { return func(r *report) float64 { return k * f(r) } }

func of(scenario, library, key string) figure {
	return func(r *report) float64 {
		for _, res := range r.Results {
			if res.Scenario != scenario {
				continue
			}
			for _, row := range res.Rows {
				if v, ok := row.Median[key]; ok && row.Library == library {
					return v
				}
			}
		}
		return math.NaN()
	}
}

// bestPeer returns the best median of the other libraries, without holdfast and the raw commands.
func bestPeer(scenario, key string, better func(a, b float64) float64) figure {
	return func(r *report) float64 {
		best := math.NaN()
		for _, l := range libraries() {
			if strings.HasPrefix(l.name, "raw-") || strings.HasPrefix(l.name, "holdfast-") {
				continue
			}
			switch v := of(scenario, l.name, key)(r); {
			case math.IsNaN(best):
				best = v
			case !math.IsNaN(v):
				best = better(best, v)
			}
		}
		return best
	}
}

// check prints a line for each target and returns how many were missed or not measured.
func (r *report) check(w io.Writer) (bad int) {
	fmt.Fprintf(w, "\n### targets\n\n| target | value | limit | |\n|---|---:|---:|---|\n")
	for _, t := range targets {
		value, limit := t.value(r), t.limit(r)
		verdict := "pass"
		switch {
		case math.IsNaN(value) || math.IsNaN(limit):
			verdict = "not measured"
			bad++
		case t.least && value < limit, !t.least && value > rounding*limit:
			verdict = "FAIL"
			bad++
		}
		relation, show := "≤ ", t.show
		if t.least {
			relation = "≥ "
		}
		if show == nil {
			show = func(v float64) string { return fmt.Sprintf("%.4g", v) }
		}
		cells := [2]string{"–", "–"}
		for i, v := range []float64{value, limit} {
			if !math.IsNaN(v) {
				cells[i] = show(v)
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s%s | %s |\n", t.text, cells[0], relation, cells[1], verdict)
	}
	return bad
}

// rounding allows for the few commands that renewals and connections add to an exact count.
const rounding = 1.005

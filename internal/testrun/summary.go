package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// place matches the file and line at the start of a test's output.
var place = regexp.MustCompile(`^\S+\.go:\d+: `)

// named is a test with its package.
type named struct {
	test
	pkg string
}

// summary prints the results of all packages. It returns the exit code.
func (r *runner) summary() int {
	var all, skipped []named
	var bad, again []string
	passed, failed, cpu := 0, 0, time.Duration(0)
	for _, res := range r.results {
		cpu += res.cpu
		short := strings.TrimPrefix(res.pkg, "github.com/holdfast-lock/")
		for _, t := range res.tests {
			n := named{t, short}
			if !strings.Contains(t.name, "/") {
				all = append(all, n)
			}
			switch t.verdict {
			case "pass":
				passed++
			case "skip":
				skipped = append(skipped, n)
			default:
				failed++
			}
		}
		if !res.ok {
			bad = append(bad, short+": "+cmp.Or(strings.Join(res.failed(), " "), "no test of its own"))
			if len(res.failed()) == 0 {
				failed++
			}
		}
		for _, t := range res.repeated {
			again = append(again, short+": "+t)
		}
	}
	slices.SortStableFunc(all, func(a, b named) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintln(r.out, "== the slowest tests")
	for _, t := range all[:min(len(all), 15)] {
		fmt.Fprintf(r.out, "%8.1fs  %s: %s\n", t.took, t.pkg, t.name)
	}
	r.printSkipped(skipped)
	for _, s := range again {
		fmt.Fprintln(r.out, "timed, and run again:", s)
	}
	for _, s := range bad {
		fmt.Fprintln(r.out, "FAILED", s)
	}
	fmt.Fprintf(r.out, "took %v, %v of processor\n%d passed, %d failed, %d skipped\n",
		time.Since(r.began).Round(time.Second), cpu.Round(time.Second), passed, failed, len(skipped))
	if len(bad) > 0 {
		return 1
	}
	return 0
}

// printSkipped prints which tests were skipped, by reason.
func (r *runner) printSkipped(skipped []named) {
	if len(skipped) == 0 {
		return
	}
	fmt.Fprintln(r.out, "== skipped, and why")
	var reasons []string
	by := map[string][]string{}
	for _, t := range skipped {
		why := t.skipReason()
		if by[why] == nil {
			reasons = append(reasons, why)
		}
		by[why] = append(by[why], t.pkg+": "+t.name)
	}
	const most = 5
	for _, why := range reasons {
		tests := by[why]
		fmt.Fprintf(r.out, "%d tests: %s\n", len(tests), why)
		for _, name := range tests[:min(len(tests), most)] {
			fmt.Fprintln(r.out, "\t"+name)
		}
		if len(tests) > most {
			fmt.Fprintf(r.out, "\tand %d more\n", len(tests)-most)
		}
	}
}

// skipReason returns a skipped test's message.
func (t *test) skipReason() string {
	for _, line := range t.output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return place.ReplaceAllString(line, "")
		}
	}
	return "no reason given"
}

// Command testrun runs the tests of several modules for the repository's test command. It ends with
// a summary: failures, the slowest tests, and skipped tests with the reasons.
//
//	testrun [-jobs N] [-more M] [-alone REGEXP] [-norace REGEXP] [-steps REGEXP] [-flags "FLAGS OF GO TEST"]
//	        [-json FILE] MODULE...
//	testrun -deep MINUTES FILE [SUITE...]
//
// A module is a folder with a go.mod. Most tests mostly wait for servers and clocks, so N packages
// run in parallel, two while the machine is busy, and up to M more while processors are idle. The
// longest begin. Packages that match -alone
// run after the others, one at a time: they use all processors. Packages that match -norace are
// built without the race detector, and with the settings of a release, so that they and the
// released program share the build cache.
// The same is true of tests that match -steps (PACKAGE.TEST): they send one request after another,
// so the race detector doubles their time and has nothing to find.
//
// Tests whose names begin with TestTimed run last. They check that something happens in time (a
// renewal, the return of a call). A busy machine can fail them although the code is right. Only
// these tests may be repeated, twice, one package at a time after all others. The summary says so.
//
// With -deep it runs the long suites instead, or those that are named, for about so many minutes, as
// scripts/deep.sh does, and adds a table of the results to FILE.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// attempts is how often a timed test runs at most. Before it is repeated, a busy machine gets some
// time to become less busy.
const (
	attempts     = 3
	mostPatience = 2 * time.Minute
)

// run is the command. It returns 0 if all tests passed, 1 if not, 2 for wrong arguments.
func run(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("testrun", flag.ContinueOnError)
	f.SetOutput(stderr)
	jobs := f.Int("jobs", 4, "how many packages run in parallel")
	more := f.Int("more", 0, "how many more run in parallel while processors are idle")
	alone := f.String("alone", "^$", "packages that run one at a time, as a regular expression")
	plain := f.String("norace", "^$", "packages that are tested without the race detector, as a regular expression")
	steps := f.String("steps", "^$", "tests without the race detector (PACKAGE.TEST), as a regular expression")
	minutes := f.Float64("deep", 0,
		"run the long suites instead, for about so many minutes, and add a table of the results to FILE")
	flags := f.String("flags", "", "flags of go test, separated by spaces")
	record := f.String("json", "", "a file for the events of go test -json")
	if err := f.Parse(args); err != nil {
		return 2
	}
	single, err := regexp.Compile(*alone)
	norace, errPlain := regexp.Compile(*plain)
	stepTests, errSteps := regexp.Compile(*steps)
	if err = errors.Join(err, errPlain, errSteps); err != nil || f.NArg() == 0 || *jobs < 1 || *more < 0 || *minutes < 0 {
		fmt.Fprintln(stderr,
			"usage: testrun [-jobs N] [-more M] [-alone REGEXP] [-norace REGEXP] [-steps REGEXP] [-flags FLAGS]",
			"[-json FILE] MODULE...")
		fmt.Fprintln(stderr, "       testrun -deep MINUTES FILE [SUITE...]", err)
		return 2
	}
	if *minutes > 0 {
		some, err := chosen(suites, f.Args()[1:])
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 2
		}
		return deep(some, *minutes, f.Arg(0), stdout)
	}
	r := &runner{out: stdout, flags: strings.Fields(*flags), record: io.Discard, began: time.Now(),
		busy: busy, idle: idle, pause: 2 * time.Second}
	if *record != "" {
		w, err := os.Create(*record)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 2
		}
		defer w.Close()
		r.record = w
	}
	programs, err := os.MkdirTemp("", "testrun")
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	r.programs = programs
	packages, err := find(f.Args(), stepTests)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	var parallel, last, timed []pkg
	for _, p := range packages {
		p.plain = norace.MatchString(p.path)
		if p.plain {
			p.steps = nil
		} else if len(p.steps) > 0 {
			parallel = append(parallel, pkg{module: p.module, path: p.path, steps: p.steps, plain: true, onlySteps: true})
		}
		if single.MatchString(p.path) {
			last = append(last, p)
		} else {
			parallel = append(parallel, p)
		}
		if p.timed {
			timed = append(timed, p)
		}
	}
	r.phase("in parallel", parallel, *jobs, *more, (*runner).once)
	r.phase("one at a time", last, 1, 0, (*runner).once)
	r.phase("timed", timed, min(*jobs, 3), 0, (*runner).timed)
	r.again()
	return r.summary()
}

// runner runs packages and keeps their results.
type runner struct {
	out      io.Writer
	flags    []string
	record   io.Writer // of the events
	programs string    // the folder of test programs for repeated tests
	began    time.Time
	busy     func() bool              // the machine is
	idle     func(time.Duration) bool // processors are, for so long
	pause    time.Duration            // until busy is asked again

	mu      sync.Mutex
	results []result
	late    []late
}

// late is a package whose timed tests failed, and may pass when nothing else runs.
type late struct {
	pkg
	result
}

// phase runs do on the packages, jobs at a time, two while the machine is busy, and up to so many more
// while processors are idle.
func (r *runner) phase(name string, packages []pkg, jobs, more int, do func(*runner, pkg)) {
	if len(packages) == 0 {
		return
	}
	fmt.Fprintf(r.out, "== %s: %d packages\n", name, len(packages))
	var taken atomic.Int64
	var all sync.WaitGroup
	for i := range min(jobs+more, len(packages)) {
		all.Go(func() {
			for {
				for int(taken.Load()) < len(packages) {
					if i >= 2 && r.busy() {
						time.Sleep(r.pause)
					} else if i < jobs || r.idle(r.pause) {
						break
					}
				}
				n := int(taken.Add(1)) - 1
				if n >= len(packages) {
					return
				}
				do(r, packages[n])
			}
		})
	}
	all.Wait()
}

// busy reports whether other programs use the machine, too: more of its threads want a processor
// than four packages of this command need. More packages would then only wait for each other,
// while the clocks of their tests go on.
func busy() bool {
	text, err := os.ReadFile("/proc/loadavg") // of the last minute; systems other than Linux have none
	first, _, _ := strings.Cut(string(text), " ")
	load, errLoad := strconv.ParseFloat(first, 64)
	return err == nil && errLoad == nil && load > float64(5*runtime.NumCPU())
}

// idle measures for so long whether more than a third of the processors' time is unused. Then the
// packages wait for clocks and servers.
func idle(d time.Duration) bool {
	unused, all := processors()
	time.Sleep(d)
	unusedNow, allNow := processors()
	return 3*(unusedNow-unused) > allNow-all
}

// processors returns the processors' time since the system has started, in its units: what was unused,
// and all. Systems other than Linux do not say.
func processors() (unused, all int) {
	text, err := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	if fields := strings.Fields(line); err == nil && len(fields) > 8 {
		for i, f := range fields[1:9] { // user, nice, system, idle, waiting for disks, and three more
			n, _ := strconv.Atoi(f)
			if all += n; i == 3 || i == 4 {
				unused += n
			}
		}
	}
	return unused, all
}

// once runs the tests of a package that are not timed.
func (r *runner) once(p pkg) {
	steps := "^(" + strings.Join(p.steps, "|") + ")$"
	switch {
	case p.onlySteps:
		r.keep(p, r.test(p, "-run="+steps))
	case len(p.steps) > 0:
		r.keep(p, r.test(p, "-skip=^"+timedPrefix+"|"+steps))
	default:
		r.keep(p, r.test(p, "-skip=^"+timedPrefix))
	}
}

// timed runs the timed tests of a package. again repeats those that failed.
func (r *runner) timed(p pkg) {
	res := r.testAgain(p, "^"+timedPrefix)
	if !res.repeatable() {
		r.keep(p, res)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = append(r.late, late{p, res})
}

// again repeats the timed tests that failed, while nothing else runs: neither other tests nor, if
// they end soon, other programs.
func (r *runner) again() {
	for _, l := range r.late {
		res := l.result
		for n := 1; n < attempts && res.repeatable(); n++ {
			for end := time.Now().Add(mostPatience); r.busy() && time.Now().Before(end); {
				time.Sleep(r.pause)
			}
			fmt.Fprintf(r.out, "again: %s: %s\n", l.pkg.path, strings.Join(res.failed(), " "))
			next := r.testAgain(l.pkg, "^("+strings.Join(res.failed(), "|")+")$")
			next.repeated = append(res.repeated, res.failed()...)
			res = next
		}
		r.keep(l.pkg, res)
	}
}

// keep records a result, and prints it.
func (r *runner) keep(p pkg, res result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.pkg = p.path; p.onlySteps {
		res.pkg += " (steps)"
	}
	r.results = append(r.results, res)
	verdict := "ok  "
	if !res.ok {
		verdict = "FAIL"
	}
	fmt.Fprintf(r.out, "%s  %6.1fs  %6.1fs of processor  %s\n", verdict, res.took.Seconds(), res.cpu.Seconds(), res.pkg)
	if !res.ok {
		io.WriteString(r.out, res.report())
	}
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suite is a part of the tests that takes too long for the test command.
type suite struct {
	name     string
	question string   // what it looks for
	dir      string   // its module
	args     []string // of go test
	env      []string

	// A suite with takes runs once, if the time allows; takes is for two cores. A suite with share
	// runs again and again, each time with other random choices, for its share of the remaining
	// time.
	takes time.Duration
	share int
	fuzz  []string // the modules whose fuzz targets run, instead of tests
}

// suites are in order of the value of a minute of each.
var suites = []suite{
	{name: "every test at full size", question: "many contenders, 10,000 names, each client library in each suite",
		dir: ".",
		args: []string{"-race", "-p", "3", "-parallel", "4", "-skip", "^TestTimed",
			"./tests/redislock", "./tests/torture", // they take longest, and wait most
			"./...", "./redislock/goredisconn/...", "./redislock/rueidisconn/...",
			"./sqllock/mysql/...", "./sqllock/postgres/...", "./sqllock/sqlite/...", "./open/...", "./tests/..."},
		env: []string{"HOLDFAST_TEST_DEEP=1"}, takes: 30 * time.Minute},
	{name: "every test of the command", question: "each store under verify, contests on each store", dir: "cmd/holdfast",
		args: []string{"-p", "3", "-parallel", "4", "-skip", "^TestTimed", "./..."}, env: []string{"HOLDFAST_TEST_DEEP=1"},
		takes: 8 * time.Minute},
	{name: "every test of the benchmarks", question: "each scenario and each peer", dir: "bench",
		args: []string{"./..."}, env: []string{"HOLDFAST_TEST_DEEP=1"}, takes: 3 * time.Minute},
	{name: "other lock libraries", question: "one lock with Curator, and with each release of Redisson", dir: "interop",
		args: []string{"-p", "1", "./..."}, env: []string{"HOLDFAST_TEST_DEEP=1"}, takes: 15 * time.Minute},
	{name: "reliability", question: "each kind of fault, in numbers", dir: "cmd/holdfast",
		args: []string{"-run", "^TestReliability$", "./torture"}, env: []string{"HOLDFAST_TEST_RELIABILITY=tenth"},
		takes: 13 * time.Minute},
	{name: "mutants", question: "would verify and the tests find injected bugs?", dir: "cmd/holdfast",
		args: []string{"-run", "Caught$", "./mutant"}, env: []string{"HOLDFAST_TEST_MUTANTS=full"}, takes: 40 * time.Minute},
	{name: "model of the protocol", question: "every order of steps and faults, larger sizes", dir: ".",
		args: []string{"./model"}, env: []string{"HOLDFAST_TEST_SPIN=full"}, takes: 12 * time.Minute},
	{name: "soak", question: "is anything left over after a million grants?", dir: ".",
		args: []string{"-run", "^TestSoak$", "./tests/torture"}, env: []string{"HOLDFAST_TEST_SOAK=full"},
		takes: 15 * time.Minute},
	{name: "torture", question: "a wrong grant on any store, under load and faults", dir: "cmd/holdfast",
		args: []string{"-run", "^TestTorture$", "./torture"}, env: []string{"HOLDFAST_TEST_DEEP=1"}, share: 5},
	{name: "model of the quorum", question: "messages lost and late, servers that forget", dir: ".",
		args: []string{"-run", "^TestModel$", "./redislock/quorum"}, env: []string{"MODEL_SEEDS=300"}, share: 2},
	{name: "random histories", question: "is every step what the rule says?", dir: ".",
		args: []string{"-run", "Model$", "./memlock", "./tests/redislock", "./sqllock/mysql", "./sqllock/postgres",
			"./sqllock/sqlite", "-rapid.checks=300"}, share: 2},
	{name: "fuzz", question: "input from outside", fuzz: []string{".", "open", "sqllock/postgres", "sqllock/sqlite",
		"cmd/holdfast"}, share: 2},
}

// chosen returns the suites with the names, or all if there are none.
func chosen(all []suite, names []string) (some []suite, err error) {
	if len(names) == 0 {
		return all, nil
	}
	known := []string{}
	for _, s := range all {
		known = append(known, s.name)
		if slices.Contains(names, s.name) {
			some = append(some, s)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("%q is no suite; want some of: %s", n, strings.Join(known, ", "))
		}
	}
	return some, nil
}

// step is a suite with its time.
type step struct {
	suite
	time time.Duration
}

// plan divides the time: at most two thirds go to suites that run once, unless all do.
func plan(all []suite, total time.Duration) (steps []step) {
	left, shares := total, 0
	for _, s := range all {
		shares += s.share
	}
	least := total / 3
	if shares == 0 {
		least = 0
	}
	for _, s := range all {
		if s.share == 0 && left-s.takes >= least {
			left -= s.takes
			steps = append(steps, step{s, s.takes})
		}
	}
	for _, s := range all {
		if s.share > 0 {
			steps = append(steps, step{s, left * time.Duration(s.share) / time.Duration(shares)})
		}
	}
	return steps
}

// part returns how much of the remaining time the first of steps gets, if it is a repeated suite.
// Earlier suites may have taken more or less time than planned.
func part(steps []step, left time.Duration) time.Duration {
	if steps[0].share == 0 {
		return steps[0].time
	}
	shares := 0
	for _, s := range steps {
		shares += s.share
	}
	return max(0, left) * time.Duration(steps[0].share) / time.Duration(shares)
}

// row is the result of a step.
type row struct {
	step
	runs   int
	took   time.Duration
	failed []string
}

func (w row) String() string {
	came := "passed"
	if len(w.failed) > 0 {
		came = "FAILED: " + strings.Join(w.failed, ", ")
	}
	return fmt.Sprintf("| %s | %s | %d | %v | %s |", w.name, w.question, w.runs, w.took.Round(time.Second), came)
}

// deep runs the long suites for about minutes, and adds a table to the file.
func deep(all []suite, minutes float64, file string, out io.Writer) int {
	rows := []string{}
	code := 0
	total, begun := time.Duration(minutes*float64(time.Minute)), time.Now()
	steps := plan(all, total)
	for i, s := range steps {
		s.time = part(steps[i:], total-time.Since(begun))
		fmt.Fprintf(out, "== %s, %v\n", s.name, s.time.Round(time.Second))
		w := row{step: s}
		began := time.Now()
		if s.fuzz != nil {
			w.runFuzz(out)
		} else {
			w.run(out)
		}
		w.took = time.Since(began)
		if len(w.failed) > 0 {
			code = 1
		}
		rows = append(rows, w.String())
		fmt.Fprintln(out, w)
	}
	for _, s := range all {
		if !slices.ContainsFunc(steps, func(x step) bool { return x.name == s.name }) {
			rows = append(rows, fmt.Sprintf("| %s | %s | 0 | | left out: it takes %v |", s.name, s.question, s.takes))
		}
	}
	table := strings.Join(rows, "\n") + "\n"
	fmt.Fprint(out, "\n", table)
	asked := fmt.Sprintf("%g minutes asked for, %v taken", minutes, time.Since(begun).Round(time.Second))
	if err := record(file, asked, table); err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	return code
}

// run runs the suite once, or as often as there is time.
func (w *row) run(out io.Writer) {
	began := time.Now()
	another := func() bool { // as long as the others were
		sofar := time.Since(began)
		return w.takes == 0 && sofar+sofar/time.Duration(w.runs) <= w.time
	}
	for w.runs == 0 || another() {
		// A suite that takes three times its time hangs.
		limit := 3 * max(w.time, 10*time.Minute)
		args := slices.Concat([]string{"-json", "-count=1", "-vet=off", "-timeout", limit.String()}, w.args)
		w.runs++
		res := goTest(w.dir, w.env, args, io.Discard)
		switch passed := func(t test) bool { return t.verdict == "pass" }; {
		case !res.ok:
			w.failed = append(w.failed, res.failed()...)
			if len(res.failed()) == 0 {
				w.failed = append(w.failed, "no test of its own")
			}
			io.WriteString(out, res.report())
			return
		case !slices.ContainsFunc(res.tests, passed): // its name has changed, or it was skipped
			w.failed = append(w.failed, "no test ran")
			return
		}
	}
}

// target matches the declaration of a fuzz target in a test's text.
var target = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// runFuzz gives each fuzz target of the modules the same time, building included.
func (w *row) runFuzz(out io.Writer) {
	began := time.Now()
	type fuzzTarget struct{ module, dir, name string }
	var all []fuzzTarget
	for _, module := range w.fuzz {
		packages, err := find([]string{module}, regexp.MustCompile("^$"))
		if err != nil {
			w.failed = append(w.failed, err.Error())
			return
		}
		for _, p := range packages {
			files, _ := filepath.Glob(filepath.Join(p.dir, "*_test.go"))
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					w.failed = append(w.failed, err.Error())
					return
				}
				for _, m := range target.FindAllSubmatch(text, -1) {
					all = append(all, fuzzTarget{module, p.path, string(m[1])})
				}
			}
		}
	}
	for i, f := range all {
		w.runs++
		each := max((w.time-time.Since(began))/time.Duration(len(all)-i), time.Second)
		// go test keeps a finding in testdata, for a test of its own.
		cmd := exec.Command("go", "test", "-vet=off", "-run", "^$", "-fuzz", "^"+f.name+"$", "-fuzztime", each.String(),
			f.dir)
		cmd.Dir = f.module
		text, err := cmd.CombinedOutput()
		if err != nil && !ranOut(string(text)) || err == nil && !bytes.Contains(text, []byte("execs: ")) {
			w.failed = append(w.failed, f.name)
			out.Write(text)
		}
	}
}

// ranOut reports whether a fuzz target failed only because its time was over: the workers of go test
// may miss that moment on a busy machine (https://go.dev/issue/75804). A finding has other lines.
func ranOut(text string) bool {
	_, said, ok := strings.Cut(text, "--- FAIL: ")
	_, said, _ = strings.Cut(said, "\n")
	said, _, _ = strings.Cut(said, "\nFAIL\n")
	return ok && strings.TrimSpace(said) == "context deadline exceeded"
}

const heading = "## Long runs\n"

// record adds a table to the section of the file about long runs, the newest first.
func record(file, asked, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, after, ok := strings.Cut(string(text), heading)
	if !ok {
		return fmt.Errorf("%s has no line %q", file, strings.TrimSpace(heading))
	}
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return fmt.Errorf("git describe: %w", err)
	}
	section, rest := after, ""
	if i := strings.Index(after, "\n## "); i >= 0 {
		section, rest = after[:i], after[i:]
	}
	intro, runs, _ := strings.Cut(section, "\n### ")
	if runs != "" {
		runs = "\n### " + runs
	}
	entry := fmt.Sprintf(
		"\n### %s, commit %s, %s\n\n| suite | what it asks | runs | took | came of it |\n|---|---|---|---|---|\n%s",
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), asked, table)
	return os.WriteFile(file, []byte(before+heading+strings.TrimRight(intro, "\n")+"\n"+entry+runs+rest), 0o644)
}

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// result is the result of one package.
type result struct {
	pkg      string
	ok       bool
	took     time.Duration
	cpu      time.Duration // used by the tests, their programs and servers, and the compiler
	tests    []test
	rest     string   // output that belongs to no test
	repeated []string // timed tests that failed before
}

// test is one test or subtest.
type test struct {
	name    string
	verdict string // pass, fail, skip; "": it did not end
	took    float64
	output  []string
}

// test builds and runs the tests of p. If the package has timed tests, it keeps the program for
// testAgain.
func (r *runner) test(p pkg, more ...string) result {
	flags, env := r.flags, []string(nil)
	if p.plain {
		flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool { // -race, and where not
			return f == "-race" || strings.HasPrefix(f, "-gcflags=") && strings.Contains(f, "=-race=")
		})
		// In the environment, since the programs that these tests build have them, too.
		env = []string{"CGO_ENABLED=0", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -trimpath"}
	}
	if p.timed {
		// Without the table of symbols, as if go test did not keep the program: that saves a third of
		// the linker's time.
		more = append(more, "-o", r.program(p), "-ldflags=-s -w")
	}
	return goTest(p.module, env, slices.Concat([]string{"-json"}, flags, more, []string{p.path}), r)
}

// program returns the path of p's test program.
func (r *runner) program(p pkg) string {
	return filepath.Join(r.programs, strings.ReplaceAll(p.path, "/", "-")+".test")
}

// testAgain runs tests of a package that was built before: go test would link it again while other
// timed tests run.
func (r *runner) testAgain(p pkg, only string) result {
	if _, err := os.Stat(r.program(p)); err != nil { // it does not build; go test reports why
		return r.test(p, "-run="+only)
	}
	args := slices.Concat([]string{"tool", "test2json", "-t", "-p", p.path, r.program(p), "-test.v=test2json",
		"-test.run=" + only},
		ofProgram(r.flags))
	cmd := exec.Command("go", args...)
	cmd.Dir = p.dir
	return collect(cmd, r)
}

// ofProgram returns those flags of go test that a test program has, under its names for them.
func ofProgram(flags []string) (out []string) {
	taken := false
	for _, f := range flags {
		if name, isFlag := strings.CutPrefix(f, "-"); isFlag {
			word, _, _ := strings.Cut(name, "=")
			taken = slices.Contains([]string{"count", "parallel", "short", "timeout"}, word)
			f = "-test." + name
		}
		if taken {
			out = append(out, f)
		}
	}
	return out
}

// goTest runs go test in a module and reads its events. It copies the events to record.
func goTest(module string, env, args []string, record io.Writer) result {
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), env...)
	return collect(cmd, record)
}

// collect runs a program that prints events, and reads them.
func collect(cmd *exec.Cmd, record io.Writer) result {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return result{rest: err.Error() + "\n", took: time.Since(began)}
	}
	res := read(out, record)
	res.ok = cmd.Wait() == nil
	res.took = time.Since(began)
	res.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	res.rest += stderr.String()
	return res
}

// read reads events to their end.
func read(events io.Reader, record io.Writer) result {
	var res result
	at := map[string]int{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			record.Write(line)
			var e event
			if json.Unmarshal(line, &e) != nil { // not of test2json
				res.rest += string(line)
			} else {
				res.add(e, at)
			}
		}
		if err != nil {
			return res
		}
	}
}

// Write writes an event to the record.
func (r *runner) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Write(line)
}

// add adds an event. at has the indexes of tests in res.tests.
func (res *result) add(e event, at map[string]int) {
	if e.Test == "" {
		if e.Action == "output" || e.Action == "build-output" {
			res.rest += e.Output
		}
		return
	}
	i, known := at[e.Test]
	if !known {
		i = len(res.tests)
		at[e.Test] = i
		res.tests = append(res.tests, test{name: e.Test})
	}
	t := &res.tests[i]
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.verdict, t.took = e.Action, e.Elapsed
	}
}

// failed returns the names of the tests that failed, or did not end, without subtests.
func (res *result) failed() (names []string) {
	for _, t := range res.tests {
		if (t.verdict == "fail" || t.verdict == "") && !strings.Contains(t.name, "/") {
			names = append(names, t.name)
		}
	}
	return names
}

// repeatable reports whether tests failed, and nothing went wrong that cannot be the machine's
// fault.
func (res *result) repeatable() bool {
	if res.ok || len(res.failed()) == 0 {
		return false
	}
	all := res.rest
	for _, t := range res.tests {
		if t.verdict == "" {
			return false
		}
		all += strings.Join(t.output, "")
	}
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(all, bad) {
			return false
		}
	}
	return true
}

// report returns the output of the failed tests, subtests before their test.
func (res *result) report() string {
	var b strings.Builder
	for _, t := range slices.Backward(res.tests) {
		if t.verdict == "fail" || t.verdict == "" {
			if t.verdict == "" {
				fmt.Fprintf(&b, "--- DID NOT END: %s\n", t.name)
			}
			for _, line := range t.output {
				if !strings.HasPrefix(line, "=== ") {
					b.WriteString(line)
				}
			}
		}
	}
	b.WriteString(res.rest)
	return b.String()
}

// Command retest runs go test, and again the tests that failed while the machine stood still.
//
//	retest [FLAGS OF GO TEST] -- PACKAGES
//
// The tests are full of leases of a few seconds, which run out when a machine that others share gives their holders no
// core for that long: such a failure says nothing of the code. So if tests failed, and the machine stood still for long
// enough meanwhile, they are run again when it goes on, package by package, and have to pass: twice at most. Everything
// is printed. Nothing excuses a data race, a panic, a package that does not build, a failure that no test owns, a wrong
// grant, a random history that breaks a rule, or anything on a machine that went on.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stall"
)

const (
	still    = 250 * time.Millisecond // an eighth of the leases in most tests
	attempts = 3
	many     = 30 // tests that fail: a break, not a stall
)

func main() {
	m := machine{watch: stall.Watch, calm: 10 * time.Second, patience: 3 * time.Minute}
	os.Exit(m.run(os.Args[1:], os.Stdout))
}

// machine is what the command is told of the machine.
type machine struct {
	watch    func() (longest func() time.Duration)
	calm     time.Duration // the machine goes on when it has for that long
	patience time.Duration // how long that is waited for
}

// run is the command.
func (m machine) run(args []string, stdout io.Writer) (code int) {
	split := slices.Index(args, "--")
	if split < 0 || split == len(args)-1 {
		fmt.Fprintln(stdout, "usage: retest [FLAGS OF GO TEST] -- PACKAGES")
		return 2
	}
	flags, packages := args[:split], args[split+1:]
	failed, ok := m.test(stdout, flags, packages...)
	for range attempts - 1 {
		if len(failed) == 0 || !ok {
			break
		}
		m.wait()
		var left []failure
		for _, f := range failed {
			again := append(slices.Clone(flags), "-count=1", "-run=^("+strings.Join(f.tests, "|")+")$")
			fails, excused := m.test(stdout, again, f.pkg)
			left, ok = append(left, fails...), ok && excused
		}
		failed = left
	}
	if len(failed) > 0 || !ok {
		return 1
	}
	return 0
}

// wait waits until the machine goes on.
func (m machine) wait() {
	for begin := time.Now(); time.Since(begin) < m.patience; {
		longest := m.watch()
		time.Sleep(m.calm)
		if longest() < still {
			return
		}
	}
}

// test runs go test. What failed may be run again if that is ok.
func (m machine) test(stdout io.Writer, flags []string, packages ...string) (failed []failure, ok bool) {
	longest := m.watch()
	output, err := goTest(stdout, flags, packages...)
	stood := longest()
	if err == nil {
		return nil, true
	}
	failed, ok = failures(output)
	n := 0
	for _, f := range failed {
		n += len(f.tests)
	}
	fmt.Fprintf(stdout, "== %d tests failed; the machine stood still for up to %v\n", n, stood.Round(time.Millisecond))
	return failed, ok && n > 0 && n <= many && stood >= still
}

// goTest runs go test, whose output is printed, too.
func goTest(stdout io.Writer, flags []string, packages ...string) (output []byte, err error) {
	var kept bytes.Buffer
	cmd := exec.Command("go", slices.Concat([]string{"test"}, flags, packages)...)
	both := io.MultiWriter(stdout, &kept)
	cmd.Stdout, cmd.Stderr = both, both
	err = cmd.Run()
	return kept.Bytes(), err
}

// failure is what failed of a package.
type failure struct {
	pkg   string
	tests []string
}

var (
	testFailed    = regexp.MustCompile(`^--- FAIL: (\w+) \(`)
	packageFailed = regexp.MustCompile(`^FAIL\t(\S+)\t[0-9.]+s$`)
	// What is no test's failure, or more than one; and what a test found in a random history, or a lock that is trusted
	// twice: no pause makes one of those, and another run may not find it.
	inexcusable = regexp.MustCompile(`^ *(WARNING: DATA RACE|panic: |fatal error: |FAIL\t.*\[.* failed\]$)|\[rapid\]|violation|granted beside|believed in at once`)
)

// failures reads what go test prints without -v: the failures of a package, and then its name. ok: they are all there is.
func failures(output []byte) (failed []failure, ok bool) {
	var tests []string
	ok = true
	for line := range strings.Lines(string(output)) {
		line = strings.TrimRight(line, "\r\n")
		if inexcusable.MatchString(line) {
			ok = false
		}
		if m := testFailed.FindStringSubmatch(line); m != nil {
			tests = append(tests, m[1])
		}
		if m := packageFailed.FindStringSubmatch(line); m != nil {
			if len(tests) == 0 {
				ok = false
			}
			failed = append(failed, failure{m[1], tests})
			tests = nil
		}
	}
	return failed, ok && len(tests) == 0
}

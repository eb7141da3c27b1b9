// Command retest runs go test, and once more the tests that failed while the machine stood still.
//
//	retest [FLAGS OF GO TEST] -- PACKAGES
//
// The tests are full of leases of a few seconds, which run out when a machine that others share gives their holders no
// core for that long: such a failure says nothing of the code. So if tests failed, they are few, and the
// machine stood still for long enough meanwhile, they are run again one after the other, and have to pass. Everything is
// printed. Nothing excuses a data race, a panic, a package that does not build, or a failure that no test owns.
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
	still = 250 * time.Millisecond // an eighth of the leases in most tests
	few   = 5
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, stall.Watch)) }

// run is the command, with what it is told of the machine.
func run(args []string, stdout io.Writer, watch func() (longest func() time.Duration)) (code int) {
	split := slices.Index(args, "--")
	if split < 0 || split == len(args)-1 {
		fmt.Fprintln(stdout, "usage: retest [FLAGS OF GO TEST] -- PACKAGES")
		return 2
	}
	flags, packages := args[:split], args[split+1:]
	longest := watch()
	output, err := goTest(stdout, flags, packages...)
	stood := longest()
	if err == nil {
		return 0
	}
	failed, ok := failures(output)
	n := 0
	for _, f := range failed {
		n += len(f.tests)
	}
	if !ok || n == 0 || n > few || stood < still {
		return 1
	}
	fmt.Fprintf(stdout, "== %d tests failed, and the machine stood still for up to %v: once more, one after the other\n", n, stood.Round(time.Millisecond))
	for _, f := range failed {
		again := append(slices.Clone(flags), "-count=1", "-parallel=1", "-run=^("+strings.Join(f.tests, "|")+")$")
		if _, err := goTest(stdout, again, f.pkg); err != nil {
			return 1
		}
	}
	return 0
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
	// What is no test's failure, or more than one.
	inexcusable = regexp.MustCompile(`^(WARNING: DATA RACE|panic: |fatal error: |FAIL\t.*\[.* failed\]$)`)
)

// failures reads what go test prints without -v: the failures of a package, and then its name. ok: they are all there is.
func failures(output []byte) (failed []failure, ok bool) {
	var tests []string
	ok = true
	for line := range strings.Lines(string(output)) {
		line = strings.TrimRight(line, "\r\n")
		if inexcusable.MatchString(strings.TrimLeft(line, " ")) {
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

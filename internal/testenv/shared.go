package testenv

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// Shared returns a function that gives every test of a package the same server. start starts the
// server for the first test that asks. Tests that share a server leave it as it was, and use names
// of their own. The package's TestMain calls RunShared, which ends the servers.
func Shared[S any](start func(testing.TB) S) func(testing.TB) S {
	var once sync.Mutex
	var server S
	var whole *wholePackage
	return func(t testing.TB) S {
		t.Helper()
		if testing.Short() {
			t.Skip("-short: this test needs a server")
		}
		once.Lock()
		defer once.Unlock()
		if whole == nil {
			w := &wholePackage{TB: t, starter: t}
			server = start(w) // a failure fails t, and the next test tries again
			w.mu.Lock()
			w.starter = nil
			w.mu.Unlock()
			whole = w
		}
		whole.showWhenFailed(t)
		return server
	}
}

// ForExample returns what shared, a result of Shared, gives to the tests of a package: an example has
// no testing.TB. It panics if the server does not start.
func ForExample[S any](shared func(testing.TB) S) S { return shared(new(example)) }

// example is the testing.TB of an example.
type example struct{ wholePackage }

func (*example) Failed() bool { return false }

// RunShared runs the tests of a package, and ends the servers that they shared. Under -short it leaves
// the package's examples out, because an example cannot be skipped.
func RunShared(m *testing.M) (code int) {
	defer endShared()
	flag.Parse()
	if testing.Short() {
		skip := "^Example"
		if more := flag.Lookup("test.skip").Value.String(); more != "" {
			skip = more + "|" + skip
		}
		_ = flag.Set("test.skip", skip) // it is a flag of package testing
	}
	return m.Run()
}

// Suite runs the tests of a package by RunShared, for goleak.VerifyTestMain.
type Suite struct{ *testing.M }

// Run implements goleak.TestingM.
func (s Suite) Run() int { return RunShared(s.M) }

var shared struct {
	mu   sync.Mutex
	ends []func()
}

func endShared() {
	shared.mu.Lock()
	ends := shared.ends
	shared.ends = nil
	shared.mu.Unlock()
	for _, end := range slices.Backward(ends) {
		end()
	}
}

// wholePackage represents all tests of a package: its cleanups run after the last of them.
type wholePackage struct {
	testing.TB // for the other methods

	mu      sync.Mutex
	starter testing.TB          // the test that starts the server; nil afterwards
	servers []*server           // those with output
	users   map[testing.TB]bool // the tests that use them now
}

func (w *wholePackage) Helper() {}

func (w *wholePackage) Cleanup(f func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.ends = append(shared.ends, f)
}

func (w *wholePackage) TempDir() string {
	dir, err := os.MkdirTemp("", "shared")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *wholePackage) Fatal(args ...any) { w.fail(fmt.Sprintln(args...)) }

func (w *wholePackage) Fatalf(format string, args ...any) { w.fail(fmt.Sprintf(format, args...)) }

func (w *wholePackage) Error(args ...any) { w.fail(fmt.Sprintln(args...)) }

func (w *wholePackage) Errorf(format string, args ...any) { w.fail(fmt.Sprintf(format, args...)) }

// fail fails the test that starts the server. Later the test that caused the failure is unknown, so
// fail ends all of them.
func (w *wholePackage) fail(text string) {
	w.mu.Lock()
	t := w.starter
	w.mu.Unlock()
	if t == nil {
		panic("a server that tests share: " + text)
	}
	t.Helper()
	t.Fatal(text)
}

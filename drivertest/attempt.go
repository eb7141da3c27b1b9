package drivertest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// attempts is how often a check is run at most that fails while the machine stands still.
const attempts = 3

// attempt is the testing.TB of one run of a check, that may be run again: what fails is printed at once, and counts
// when nothing excuses it. What it opened is closed when it ends.
type attempt struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// run runs check, and says whether it failed.
func (a *attempt) run(check func(t testing.TB)) (failed bool) {
	var done sync.WaitGroup
	done.Go(func() {
		defer a.end()
		check(a)
	})
	done.Wait() // which FailNow ends too
	return a.Failed()
}

func (a *attempt) end() {
	for len(a.cleanups) > 0 {
		last := len(a.cleanups) - 1
		f := a.cleanups[last]
		a.cleanups = slices.Delete(a.cleanups, last, last+1)
		f()
	}
}

// Cleanup implements testing.TB.
func (a *attempt) Cleanup(f func()) { a.cleanups = append(a.cleanups, f) }

// Fail implements testing.TB.
func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

// Failed implements testing.TB.
func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// FailNow implements testing.TB.
func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

// Error implements testing.TB.
func (a *attempt) Error(args ...any) {
	a.Helper()
	a.Errorf("%s", fmt.Sprint(args...))
}

// Errorf implements testing.TB.
func (a *attempt) Errorf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.Fail()
}

// Fatal implements testing.TB.
func (a *attempt) Fatal(args ...any) {
	a.Helper()
	a.Fatalf("%s", fmt.Sprint(args...))
}

// Fatalf implements testing.TB.
func (a *attempt) Fatalf(format string, args ...any) {
	a.Helper()
	a.Logf(format, args...)
	a.FailNow()
}

// Package attempt runs a part of a test whose failure need not be the test's: one that may be run again, or has to fail.
package attempt

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// attempt is the testing.TB of one run.
type attempt struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// Run runs f, which takes its testing.TB for that of a test, and says whether it failed. What fails is logged by t. What f
// opened is closed (by Cleanup) when it ends.
func Run(t testing.TB, f func(t testing.TB)) (failed bool) {
	a := &attempt{TB: t}
	var done sync.WaitGroup
	done.Go(func() {
		defer a.end()
		f(a)
	})
	done.Wait() // which FailNow ends too
	return a.Failed()
}

func (a *attempt) end() {
	for {
		a.mu.Lock()
		last := len(a.cleanups) - 1
		if last < 0 {
			a.mu.Unlock()
			return
		}
		f := a.cleanups[last]
		a.cleanups = slices.Delete(a.cleanups, last, last+1)
		a.mu.Unlock()
		f()
	}
}

// Cleanup implements testing.TB.
func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

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

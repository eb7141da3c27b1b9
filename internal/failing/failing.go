// Package failing runs a part of a test that has to fail: a check of a store with a mistake, say.
package failing

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// part is the testing.TB of the part.
type part struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// Run runs f, which takes its testing.TB for that of a test, and reports whether f failed. It logs
// the failures to t, which does not fail by them. The cleanups of f run when it has ended.
func Run(t testing.TB, f func(t testing.TB)) (failed bool) {
	p := &part{TB: t}
	var done sync.WaitGroup
	done.Go(func() {
		defer p.end()
		f(p)
	})
	done.Wait() // FailNow ends it, too
	return p.Failed()
}

func (p *part) end() {
	for {
		p.mu.Lock()
		last := len(p.cleanups) - 1
		if last < 0 {
			p.mu.Unlock()
			return
		}
		f := p.cleanups[last]
		p.cleanups = slices.Delete(p.cleanups, last, last+1)
		p.mu.Unlock()
		f()
	}
}

// Cleanup implements testing.TB.
func (p *part) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// Fail implements testing.TB.
func (p *part) Fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
}

// Failed implements testing.TB.
func (p *part) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// FailNow implements testing.TB.
func (p *part) FailNow() {
	p.Fail()
	runtime.Goexit()
}

// Error implements testing.TB.
func (p *part) Error(args ...any) {
	p.Helper()
	p.Errorf("%s", fmt.Sprint(args...))
}

// Errorf implements testing.TB.
func (p *part) Errorf(format string, args ...any) {
	p.Helper()
	p.Logf(format, args...)
	p.Fail()
}

// Fatal implements testing.TB.
func (p *part) Fatal(args ...any) {
	p.Helper()
	p.Fatalf("%s", fmt.Sprint(args...))
}

// Fatalf implements testing.TB.
func (p *part) Fatalf(format string, args ...any) {
	p.Helper()
	p.Logf(format, args...)
	p.FailNow()
}

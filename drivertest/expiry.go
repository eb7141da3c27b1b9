package drivertest

import (
	"testing"
	"time"
)

// useExpiry begins a check that waits until a lease or place expires, or nearly. It runs in
// parallel with others of its kind, after the checks that stop the store or make it refuse writes.
func (e *env) useExpiry() {
	e.Helper()
	if t, ok := e.TB.(*testing.T); ok && !e.h.Bubble {
		t.Parallel()
		e.begin()
	}
	e.renewEvery, e.expires = e.h.TTL/3, true
}

// slack returns how late an event may come.
func (e *env) slack() time.Duration {
	if e.h.Bubble {
		return e.h.TTL / 2
	}
	return patience
}

// sleepPastTTL sleeps until a lease or place of the harness's TTL, proved before the call, has
// expired.
func (e *env) sleepPastTTL() { time.Sleep(e.h.TTL + e.h.TTL/5 + quiet) }

// retrySlow runs a part of a check that relies on a lease of the harness's TTL and renews it in
// time. The result counts unless try reports that the machine was too slow: the lease may have
// expired then, so the result says nothing about the store. retrySlow then tries again with other
// names.
func (e *env) retrySlow(try func() (slow bool)) {
	e.Helper()
	prefix := e.prefix
	defer func() { e.prefix = prefix }()
	for n := range 20 {
		e.prefix = prefix + itoa(n) + "/"
		if !try() {
			return
		}
	}
	e.Fatalf("the machine was too slow in each try, for a lease of %v", e.h.TTL)
}

// proof is the age of the last proof of a lease of the harness's TTL.
type proof struct {
	e    *env
	p    *peer     // whose lease it is; nil: it does not depend on a session
	sent time.Time // when the last proof was sent
}

// prove sends a proof of the lease, which the store must accept until the lease expires. It reports
// whether the machine was too slow.
func (p *proof) prove(what string, send func() (taken bool)) (slow bool) {
	p.e.Helper()
	sent := time.Now()
	if send() {
		p.sent = sent
		return false
	}
	if !p.over() {
		p.e.Fatalf("%s: not accepted %v after the last proof of a lease of %v", what, time.Since(p.sent), p.e.h.TTL)
	}
	return true
}

// over reports whether the lease may have expired. A session ends some time before its leases do, and
// reports that a moment after its calls.
func (p *proof) over() bool {
	if time.Since(p.sent) >= p.e.h.TTL {
		return true
	}
	if p.p == nil {
		return false
	}
	select {
	case <-p.p.Lost():
		return true
	case <-time.After(quiet):
		return false
	}
}

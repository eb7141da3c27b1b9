package drivertest

import (
	"testing"
	"time"
)

// expires begins a check that waits until something runs out, or nearly. It runs beside the others
// of its kind, when the checks have ended that stop the store or have it refuse writes.
func (e *env) expires() {
	e.Helper()
	if t, ok := e.TB.(*testing.T); ok && !e.h.Bubble {
		t.Parallel()
		e.begin()
	}
	e.beat, e.lapses = e.h.TTL/3, true
}

// lag is how much later than it is due something may come.
func (e *env) lag() time.Duration {
	if e.h.Bubble {
		return e.h.TTL / 2
	}
	return patience
}

// runsOut sleeps until a lease or place of the harness's TTL, proven before the call, is over.
func (e *env) runsOut() { time.Sleep(e.h.TTL + e.h.TTL/5 + quiet) }

// tries runs a part of a check that relies on a lease of the harness's TTL, and proves it again in
// time. What try says is final unless it says that the machine was too slow: the lease may have been
// over by then, so that nothing is known of the store. It tries again with other names.
func (e *env) tries(try func() (slow bool)) {
	e.Helper()
	prefix := e.prefix
	defer func() { e.prefix = prefix }()
	for n := range 20 {
		e.prefix = prefix + itoa(n) + "/"
		if !try() {
			return
		}
	}
	e.Fatalf("a lease of %v was never proven in time", e.h.TTL)
}

// proof is a lease of the harness's TTL, as old as its last proof.
type proof struct {
	e    *env
	sent time.Time // when the last proof was sent
}

// proves sends a proof of the lease, which must be taken while the lease stands. It reports whether
// the machine was too slow for that.
func (p *proof) proves(what string, send func() (taken bool)) (slow bool) {
	p.e.Helper()
	sent := time.Now()
	if send() {
		p.sent = sent
		return false
	}
	if !p.over() {
		p.e.Fatalf("%s: not taken %v after the last proof of a lease of %v", what, time.Since(p.sent), p.e.h.TTL)
	}
	return true
}

// over reports whether the lease may be over by now.
func (p *proof) over() bool { return time.Since(p.sent) >= p.e.h.TTL }

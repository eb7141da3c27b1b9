// Package drivertest checks a store against the rules of package driver.
//
// A store's tests call [Run] with a [Harness] that can open the store and inject faults. The suite
// is a table: each check has the number of its rule and a sentence, which a failure prints. The
// suite refuses a store in which one of the faults cannot be injected, instead of skipping checks:
// what is not tested does not work.
//
// The checks do not depend on the speed of the machine. Those of order use leases of a minute.
// Those of expiry wait for the event, with a generous upper bound, and assert the lower bound; they
// run in parallel, after all others. [RunTimed] runs the few checks of time limits.
package drivertest

import (
	"context"
	"crypto/rand"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Harness is a store under test.
type Harness struct {
	// TTL is the lease duration in checks in which a lease expires. It should be as short as
	// possible while the store's own delays do not matter. A second is good for a server on the
	// same machine.
	TTL time.Duration

	// Open connects to the store as a separate process would. The harness closes the connection
	// when the test ends.
	Open func(t testing.TB) Conn

	// Restart stops the store, starts it again with its data, and returns when it serves. For a
	// store without a server: it closes every handle on the store and opens the store again.
	Restart func(t testing.TB)

	// Refuse makes the store answer reads and refuse every write, as a read-only replica or a full
	// disk does, until heal is called. Each way has one entry, under the name of its error; each is
	// tested. Nil is allowed only with CannotRefuse.
	Refuse map[string]func(t testing.TB) (heal func())

	// CannotRefuse is the reason why the store has no such state.
	CannotRefuse string

	// Damage damages the record of a name in use, so that the store cannot read it. Each way has
	// one entry. Nil is allowed only with CannotDamage.
	Damage map[string]func(t testing.TB, name string)

	// CannotDamage is the reason why nobody can do that to the store.
	CannotDamage string

	// Forger sends what a stranger may send. Nil is allowed only with CannotForge.
	Forger *Forger

	// CannotForge is the reason why no stranger can send a push to a session.
	CannotForge string

	// Polled is the reason why the store cannot report changes at once. Empty: its Backend is a
	// driver.Watcher and must do so.
	Polled string

	// LimitsStay is the reason why the limit of a semaphore's first request stays, as if SetLimit had
	// set it. Empty: it ends with the last user.
	LimitsStay string

	// RefusesName reports whether the store refuses a name as invalid because other software could not
	// use it. Nil: it refuses none.
	RefusesName func(name string) bool

	// Names is the number of names in the check of many names. Zero: 1,000. Each store should pass
	// with 10,000 once.
	Names int

	// Waiters is the number of waiters in the check of arrival order. Zero: 200. It is for a store
	// where a place lasts for seconds only, unless its session gives a sign of life.
	Waiters int

	// Placed returns when all servers have a place or a grant of a request that waits for name. It is
	// for a store of several servers that each have a queue: a request that reaches one of them late
	// comes later in its queue. Placed calls renew again and again while it waits: a renewal of the place
	// asks a server that the request has not reached. Nil: an answer means that the request has its place.
	Placed func(t testing.TB, name, id string, renew func())

	// Only lists the checks to run, for a store whose whole suite runs with another client library
	// or on other servers. A name without a check fails the test. Empty: all.
	Only []string

	// Insists says that a session itself repeats a refused release, when the store accepts writes
	// again. The caller's own repeat may then come second.
	Insists bool

	// Bubble runs every check in a testing/synctest bubble, where waiting costs nothing and bounds
	// are exact. It is for stores without sockets, files or processes.
	Bubble bool
}

// Conn is a backend with connections of its own, and the faults that can be injected into them.
type Conn struct {
	driver.Backend

	// Kill does what kill -9 of the process would: its connections close without a message. Nothing
	// that is sent through the backend afterwards reaches the store.
	Kill func()

	// Cut drops all packets until heal is called: nothing arrives in either direction, and the
	// store does not notice.
	Cut func() (heal func())

	// DropReplies lets requests arrive and be done, but loses their answers, until heal is called.
	DropReplies func() (heal func())

	// Hold holds back what is sent on the connections that are open now, until deliver is called.
	// New connections are not affected. Held requests are delivered even if the client has closed
	// its connection meanwhile, so an Acquire can arrive after its Cancel.
	Hold func() (deliver func())

	// Forget makes the network forget the connections that are open now: nothing more arrives on
	// them in either direction, and neither end notices. New connections work.
	Forget func()
}

// Watch implements driver.Watcher, if the Backend does.
func (c Conn) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	return driver.Watch(ctx, c.Backend, prefix, changed)
}

// Forger sends messages to the place where sessions receive their pushes, as anybody can who may
// not take locks.
type Forger struct {
	// Send sends messages about name to a session, and returns when they have been sent. The
	// session has a place or a grant on record. Send leaves out messages that the store's server
	// cannot carry.
	Send func(t testing.TB, session, name string, messages ...string)

	// Message returns what the store would send to hand the token of name to request id, without
	// the parts that only the store and those who may take locks can add.
	Message func(id string, token uint64, name string) string

	// Hear starts to record the pushes to a session, and returns a function for those received so
	// far. It is for stores that add something to a Message; others leave it nil.
	Hear func(t testing.TB, session, name string) (heard func() []string)

	// Believed says that docs/security.md admits this for the store: anyone who knows the ID of a
	// request can make its waiter believe in a token that the store's clock can have made, until
	// the store is next asked about the lease.
	Believed bool
}

const (
	// longTTL is for leases that do not expire in a check, however slow the machine is.
	longTTL = time.Minute

	// steadyTTL is for leases that must survive a few exchanges on a slow machine, and that expire,
	// or are renewed, while a check waits.
	steadyTTL = 10 * time.Second

	// patience is how long a check waits for an event. A lease of longTTL does not expire
	// meanwhile, so its expiry cannot cause the event.
	patience = longTTL / 2

	// quiet is how long a check waits for a push that must not come.
	quiet = 200 * time.Millisecond
)

type check struct {
	rule, name, sentence string
	run                  func(e *env)
}

var suite = [][]check{exclusive, queue, faults, refusals, passed, damages, tokens, modes, reductions, limits, adoption,
	names, latches, operators, clients, lateRequests, silentNetwork, primitives, pushes, texts, leases, watching,
	histories, callBacks}

// Run checks the store against every rule.
func Run(t *testing.T, h Harness) {
	if h.Restart == nil {
		t.Fatal("drivertest: the harness must be able to Restart the store")
	}
	if len(h.Refuse) == 0 && h.CannotRefuse == "" || len(h.Damage) == 0 && h.CannotDamage == "" {
		t.Fatal("drivertest: the harness must be able to Refuse writes and to Damage records, or state why nobody can")
	}
	if h.Forger == nil && h.CannotForge == "" {
		t.Fatal("drivertest: the harness must have a Forger, or state why nobody can forge a push")
	}
	topics := append(slices.Clone(suite), locksOnlyChecks)
	if h.Bubble {
		topics = append(topics, timed)
	}
	h.run(t, topics)
}

// RunTimed checks the time limits of the store and its client: a lease is renewed, a call returns,
// a dead holder's lock becomes free. A machine that stops for a second can fail these checks
// although the code is right. So they are no part of Run, except in a bubble. Tests that call
// RunTimed have names that begin with TestTimed: they run alone.
func RunTimed(t *testing.T, h Harness) { h.run(t, [][]check{timed}) }

func (h Harness) run(t *testing.T, topics [][]check) {
	if h.Open == nil || h.TTL < driver.MinTTL {
		t.Fatal("drivertest: the harness must be able to Open the store, with a TTL of at least ", driver.MinTTL)
	}
	if unknown := unknown(h.Only); len(unknown) > 0 {
		t.Fatalf("drivertest: Harness.Only names no check: %q", unknown)
	}
	kinds := h.Open(t).Kinds()
	counts := kinds.Semaphores
	for _, topic := range topics {
		for _, c := range topic {
			if countingChecks[c.name] && !counts || c.rule == locksOnlyChecks[0].rule && c.name == locksOnlyChecks[0].name &&
				counts {
				continue
			}
			if c.rule == leases[0].rule && !kinds.Leases {
				continue
			}
			if len(h.Only) > 0 && !slices.Contains(h.Only, c.name) {
				continue
			}
			t.Run(c.rule+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				if h.Bubble {
					synctest.Test(t, func(t *testing.T) { h.check(t, c) })
				} else {
					h.check(t, c)
				}
			})
		}
	}
}

// unknown returns those of names that no check has.
func unknown(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(slices.Concat(append(slices.Clone(suite), locksOnlyChecks)...),
			func(c check) bool { return c.name == name })
	})
}

// check fails t if the store fails the check.
func (h Harness) check(t testing.TB, c check) {
	defer func() {
		if t.Failed() {
			t.Errorf("%s: %s", c.rule, c.sentence)
		}
	}()
	e := &env{TB: t, h: h, ttl: longTTL, renewEvery: longTTL / 3, prefix: strings.ToLower(rand.Text()[:8]) + "/"}
	e.begin()
	e.healthy = sync.OnceValue(func() driver.Backend { return e.conn() })
	pprof.Do(context.Background(), pprof.Labels("check", e.prefix), func(context.Context) { c.run(e) })
}

// env is the environment of one check.
type env struct {
	testing.TB
	h          Harness
	ttl        time.Duration // of sessions and clients that survive the check
	renewEvery time.Duration // how often a waiter renews its place
	expires    bool          // leases expire in the check
	ctx        context.Context
	cancel     context.CancelFunc // of ctx
	prefix     string             // of every name, so that checks use different names
	ids        atomic.Int64
	healthy    func() driver.Backend // a connection without faults
}

// begin sets the deadline of the check, because a store may hang.
func (e *env) begin() {
	e.ctx, e.cancel = context.WithTimeout(context.Background(), 5*time.Minute)
	e.Cleanup(e.cancel)
}

// spawn runs f beside the check. The check ends e.ctx at its end, and waits for f, which may report
// errors.
func (e *env) spawn(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	e.Cleanup(func() { e.cancel(); <-done })
}

// locksOnly reports whether the store keeps neither semaphores nor latches.
func (e *env) locksOnly() bool { return !e.healthy().Kinds().Semaphores }

func (e *env) name(s string) string { return e.prefix + s }

// conn opens a connection into which faults can be injected.
func (e *env) conn() Conn {
	e.Helper()
	c := e.h.Open(e.TB)
	if c.Kill == nil || c.Cut == nil || c.DropReplies == nil || c.Hold == nil || c.Forget == nil {
		e.Fatal(
			"drivertest: the harness cannot Kill, Cut, DropReplies, Hold or Forget; a store is checked only with these faults")
	}
	return c
}

// Package drivertest checks a store against the rules of package driver.
//
// A store's tests call [Run] with a [Harness] that knows how to open the store and how to
// hurt it. The suite is a table: each check has the rule it stands for and a sentence,
// which are printed when it fails. A store that cannot be hurt in one of the ways is
// refused, not skipped: what has not been tried does not work.
//
// The checks do not depend on how fast the machine is. Those of order use leases of a minute. Those
// of expiry wait for the event, with a generous bound above, and assert the bound below; they run
// side by side, after all others. [RunTimed] runs the few that ask whether something is done in time.
package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Harness is a store under test.
type Harness struct {
	// TTL is that of leases which a check lets run out: as short as the store allows without its
	// own delays mattering. A second is good for a server on the same machine.
	TTL time.Duration

	// Open connects to the store as a process of its own would. The connection is closed by
	// the harness when the test ends.
	Open func(t testing.TB) Conn

	// Restart stops the store and starts it again with its data, and returns when it
	// serves. For a store without a server: closes every handle on it and opens it again.
	Restart func(t testing.TB)

	// Refuse makes the store answer reads and refuse every write, as a read-only replica or a full disk does, until heal is
	// called. Each way that the store knows is one entry, under the name of its error; each is tried. Nil is
	// allowed only with CannotRefuse.
	Refuse map[string]func(t testing.TB) (heal func())

	// CannotRefuse says why there is no such state of the store.
	CannotRefuse string

	// Damage spoils the record of a name that is in use, so that the store cannot read it as one. Each way is one
	// entry. Nil is allowed only with CannotDamage.
	Damage map[string]func(t testing.TB, name string)

	// CannotDamage says why nobody can do that to the store.
	CannotDamage string

	// Forger sends what a stranger may send. Nil is allowed only with CannotForge.
	Forger *Forger

	// CannotForge says why no stranger can push anything to a session.
	CannotForge string

	// Names is how many names the check of many names takes. Zero: 1,000. Each store should stand
	// 10,000 once.
	Names int

	// Only are the names of the checks that are run, for a store whose whole suite is run with another client library
	// or on other servers. A name that no check has fails the test. Empty: all.
	Only []string

	// Insists says that a session repeats a release that was refused by itself, when the store
	// takes writes again. The caller's own repeat may then come second.
	Insists bool

	// LocksOnly says that the store keeps mutexes and read/write locks, and refuses semaphores
	// and latches with ErrInvalid: that is what is checked of them.
	LocksOnly bool

	// Bubble runs every check in a testing/synctest bubble, where time costs nothing and bounds
	// are exact. For stores without sockets, files or processes.
	Bubble bool
}

// Conn is a backend with connections of its own, and the ways to hurt them.
type Conn struct {
	driver.Backend

	// Kill does what kill -9 of the process would: its connections close, nothing was said.
	// Nothing sent through the backend afterwards reaches the store.
	Kill func()

	// Cut makes a black hole of the network until heal is called: nothing arrives in
	// either direction, and the store does not know.
	Cut func() (heal func())

	// DropReplies lets requests arrive and be carried out, but their answers are lost,
	// until heal is called.
	DropReplies func() (heal func())

	// Hold keeps back what is sent on the connections that are open now, until deliver is called. New connections are
	// not concerned. What was kept back is delivered even if the client has closed its connection meanwhile: so an
	// Acquire arrives after its Cancel.
	Hold func() (deliver func())

	// Forget makes the network forget the connections that are open now: nothing more arrives on
	// them in either direction, and no end is told. New connections work.
	Forget func()
}

// Forger sends messages to where sessions hear of their grants, as somebody can who may not take locks.
type Forger struct {
	// Send sends messages about name to a session, and returns when they have been sent. The session has a place or a
	// grant on record. A message that the store's server does not carry is left out.
	Send func(t testing.TB, session, name string, messages ...string)

	// Message is what the store would send to hand the token of name over to request id, without what only the store and
	// those who may take locks can add.
	Message func(id string, token uint64, name string) string

	// Hear begins to listen to what a session is told, and returns what was heard so far. It is for stores that add
	// something to a Message; others leave it nil.
	Hear func(t testing.TB, session, name string) (heard func() []string)

	// Believed says what docs/security.md says of the store: whoever knows the ID of a request can have its waiter
	// believe in a token that the store's clock can have made, until the store is next asked about the lease.
	Believed bool
}

const (
	// longTTL is that of leases which do not run out in a check, however slow the machine is.
	longTTL = time.Minute

	// steadyTTL is that of leases which have to outlive a few exchanges on a slow machine, and run
	// out, or are renewed, while a check waits.
	steadyTTL = 10 * time.Second

	// patience is how long a check waits for what must come. A lease of longTTL does not run out
	// meanwhile, so that its end is not what brings it.
	patience = longTTL / 2

	// quiet is how long a check listens for what must not be heard.
	quiet = 200 * time.Millisecond
)

type check struct {
	rule, name, sentence string
	run                  func(e *env)
}

var suite = [][]check{exclusive, line, faults, refusals, passed, damages, tokens, modes, adoption, names, latches,
	operators, clients, crossings, silences, primitives, pushes, texts}

// Run checks the store against every rule.
func Run(t *testing.T, h Harness) {
	if h.Restart == nil {
		t.Fatal("drivertest: the harness must be able to Restart the store")
	}
	if len(h.Refuse) == 0 && h.CannotRefuse == "" || len(h.Damage) == 0 && h.CannotDamage == "" {
		t.Fatal("drivertest: the harness must be able to Refuse writes and to Damage records, or say why nobody can")
	}
	if h.Forger == nil && h.CannotForge == "" {
		t.Fatal("drivertest: the harness must have a Forger, or say why nobody can forge a push")
	}
	topics := suite
	if h.LocksOnly {
		topics = append(slices.Clone(topics), without)
	}
	if h.Bubble {
		topics = append(slices.Clone(topics), timed)
	}
	h.run(t, topics)
}

// RunTimed checks whether the store and its client do things in time: a lease is renewed, a call is
// back, a dead holder's lock comes free. A machine that stands still for a second can break these
// checks although the code is right, so they are no part of Run, except in a bubble. The tests that
// call it have names that begin with TestTimed: they run alone.
func RunTimed(t *testing.T, h Harness) { h.run(t, [][]check{timed}) }

func (h Harness) run(t *testing.T, topics [][]check) {
	if h.Open == nil || h.TTL < driver.MinTTL {
		t.Fatal("drivertest: the harness must be able to Open the store, with a TTL of at least ", driver.MinTTL)
	}
	if unknown := unknown(h.Only); len(unknown) > 0 {
		t.Fatalf("drivertest: Harness.Only names no check: %q", unknown)
	}
	for _, topic := range topics {
		for _, c := range topic {
			if h.LocksOnly && counting[c.name] || len(h.Only) > 0 && !slices.Contains(h.Only, c.name) {
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

// unknown are those of names that no check has.
func unknown(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(slices.Concat(append(slices.Clone(suite), without)...), func(c check) bool { return c.name == name })
	})
}

// check fails t if the store fails the check.
func (h Harness) check(t testing.TB, c check) {
	defer func() {
		if t.Failed() {
			t.Errorf("%s: %s", c.rule, c.sentence)
		}
	}()
	e := &env{TB: t, h: h, ttl: longTTL, beat: longTTL / 3, prefix: strings.ToLower(rand.Text()[:8]) + "/"}
	e.begin()
	e.sees = sync.OnceValue(func() driver.Backend { return e.conn() })
	pprof.Do(context.Background(), pprof.Labels("check", e.prefix), func(context.Context) { c.run(e) })
}

// env is what one check works with.
type env struct {
	testing.TB
	h      Harness
	ttl    time.Duration // of the sessions and clients of those that live on
	beat   time.Duration // how often a waiter renews its place
	lapses bool          // leases run out in the check
	ctx    context.Context
	prefix string // of every name, so that checks do not meet
	ids    int
	sees   func() driver.Backend // a connection that is not hurt
}

// begin sets the deadline of the check: with a store that hangs, the suite must not.
func (e *env) begin() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	e.Cleanup(cancel)
	e.ctx = ctx
}

func (e *env) name(s string) string { return e.prefix + s }

// conn opens a connection that can be hurt.
func (e *env) conn() Conn {
	e.Helper()
	c := e.h.Open(e.TB)
	if c.Kill == nil || c.Cut == nil || c.DropReplies == nil || c.Hold == nil || c.Forget == nil {
		e.Fatal("drivertest: the harness cannot Kill, Cut, DropReplies, Hold or Forget; a store that has not been hurt is not checked")
	}
	return c
}

// party is one session and its connection.
type party struct {
	e *env
	Conn
	driver.Session
	id string
}

func (e *env) party() *party {
	e.Helper()
	return e.partyFor(e.ttl)
}

// brief is a party whose leases and places run out in the check.
func (e *env) brief() *party {
	e.Helper()
	return e.partyFor(e.h.TTL)
}

// partyFor is party with a TTL of its own.
func (e *env) partyFor(ttl time.Duration) *party {
	e.Helper()
	c := e.conn()
	id := strings.ToLower(rand.Text())
	s, err := c.Open(e.ctx, driver.SessionConfig{ID: id, TTL: ttl, Info: driver.Info{Host: "h", PID: 1, Note: id}.String()})
	if err != nil {
		e.Fatalf("Open: %v", err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // it may be dead by now
	})
	return &party{e, c, s, id}
}

// Name keeps the embedded Backend's and Session's methods apart.
func (p *party) Close(ctx context.Context) error { return p.Session.Close(ctx) }

// req makes a request that waits.
func (p *party) req(name string) *driver.Request {
	p.e.ids++
	id := p.id + "-" + string(rune('a'+p.e.ids%26)) + strings.Repeat("z", p.e.ids/26%10) + itoa(p.e.ids)
	return &driver.Request{ID: id, Name: p.e.name(name), Mode: driver.Exclusive, N: 1, Wait: true, Info: driver.Info{Note: "info of " + name}.String()}
}

func (p *party) shared(name string) *driver.Request {
	r := p.req(name)
	r.Mode = driver.Shared
	return r
}

func (p *party) permits(name string, n, limit int) *driver.Request {
	r := p.req(name)
	r.Mode, r.N, r.Limit = driver.Permits, n, limit
	return r
}

func once(r *driver.Request) *driver.Request { r.Wait = false; return r }

// ask is Acquire that must be answered.
func (p *party) ask(r *driver.Request) driver.Reply {
	p.e.Helper()
	reply, err := p.Acquire(p.e.ctx, r)
	for try := 0; try < 2 && errors.Is(err, driver.ErrSpent); try++ { // replicas were busy, as they may be
		r.ID = p.req(r.Name).ID
		reply, err = p.Acquire(p.e.ctx, r)
	}
	if err != nil {
		p.e.Fatalf("Acquire(%q): %v", r.Name, err)
	}
	return reply
}

// get is Acquire that must be granted.
func (p *party) get(r *driver.Request) driver.Hold {
	p.e.Helper()
	reply := p.ask(r)
	if reply.Token == 0 {
		p.e.Fatalf("Acquire(%q) was not granted; in the way: %+v", r.Name, reply.Holder)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

// refused is Acquire that must not be granted.
func (p *party) refused(r *driver.Request) driver.Reply {
	p.e.Helper()
	reply := p.ask(r)
	if reply.Token != 0 {
		p.e.Fatalf("Acquire(%q) was granted token %d beside another holder", r.Name, reply.Token)
	}
	if r.Wait && reply.Wake == nil {
		p.e.Fatalf("Acquire(%q): no Wake for a request that waits", r.Name)
	}
	return reply
}

func (p *party) release(h driver.Hold) {
	p.e.Helper()
	if err := p.Release(p.e.ctx, h, 0); err != nil {
		p.e.Fatalf("Release(%q): %v", h.Name, err)
	}
}

// renew is Renew of one hold that must be answered; the zero Change is no news.
func (p *party) renew(h driver.Hold) driver.Change {
	p.e.Helper()
	changes, err := p.Renew(p.e.ctx, []driver.Hold{h})
	if err != nil {
		p.e.Fatalf("Renew(%q): %v", h.Name, err)
	}
	if len(changes) == 0 {
		return driver.Change{}
	}
	if len(changes) > 1 || changes[0].Index != 0 {
		p.e.Fatalf("Renew of one hold answered %+v", changes)
	}
	return changes[0]
}

func place(r *driver.Request) driver.Hold { return driver.Hold{Name: r.Name, ID: r.ID} }

// inspect is Inspect that must be answered.
func (p *party) inspect(name string) driver.Record {
	p.e.Helper()
	r, err := p.Inspect(p.e.ctx, p.e.name(name))
	if err != nil {
		p.e.Fatalf("Inspect(%q): %v", name, err)
	}
	return r
}

func itoa(n int) string {
	const digits = "0123456789"
	if n < 10 {
		return digits[n : n+1]
	}
	return itoa(n/10) + digits[n%10:n%10+1]
}

package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// scene is a lock that a holds and b waits for, whom a stranger sends messages.
type scene struct {
	*env
	f       *Forger
	a, b    *holdfast.Client
	conn    Conn // b's
	spy     *spy // of what b asks
	name    string
	mark    *holdfast.Lease // b's, of another name
	held    *holdfast.Lease
	earlier uint64 // a token that b was granted before
	first   string // and the ID of that request
	heard   func() []string
	got     chan outcome
}

// outcome is what a Lock returned.
type outcome struct {
	l   *holdfast.Lease
	err error
}

func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return fmt.Sprint("token ", o.l.Token())
}

// scene has b wait, whose leases last for ttl.
func (e *env) scene(f *Forger, ttl time.Duration) *scene {
	e.Helper()
	s := &scene{env: e, f: f, a: e.client(nil), conn: e.conn(), name: e.name("x"), got: make(chan outcome, 1)}
	s.spy = &spy{Backend: s.conn.Backend, last: map[string]asked{}}
	s.conn.Backend = s.spy
	s.b = e.clientOn(s.conn, &holdfast.Config{TTL: ttl})
	s.mark = e.lock(s.b, "mark")
	if f.Hear != nil {
		s.heard = f.Hear(e.TB, s.spy.session, s.name)
	}
	s.held = e.lock(s.a, "x")
	s.waits()
	l := s.handsOver() // a true push, which can be repeated
	s.earlier, s.first = l.Token(), s.spy.id(s.name)
	s.again(l)
	return s
}

// again releases b's lease, has a hold the lock and b wait for it.
func (s *scene) again(l *holdfast.Lease) {
	s.Helper()
	if err := l.Release(); err != nil {
		s.Fatal(err)
	}
	s.held = s.lock(s.a, "x")
	s.waits()
}

// waits has b wait for the lock.
func (s *scene) waits() {
	s.Helper()
	s.asks(s.b)
	s.soon("one waits", func() bool { return s.waiting(s.a, "x") == 1 })
}

func (s *scene) asks(c *holdfast.Client) {
	name := s.name
	go func() {
		l, err := c.Mutex(name).Lock(s.ctx)
		s.got <- outcome{l, err}
	}()
}

// begins has b wait for another name that a holds. Its request is kept back while f runs.
func (s *scene) begins(name string, f func()) {
	s.Helper()
	l := s.handsOver()
	if err := l.Release(); err != nil {
		s.Fatal(err)
	}
	s.name = s.env.name(name)
	s.held = s.lock(s.a, name)
	deliver := s.conn.Hold()
	defer deliver()
	s.asks(s.b)
	s.soon("the request is under way", func() bool { return s.spy.id(s.name) != "" })
	f()
	deliver()
	s.soon("one waits", func() bool { return s.waiting(s.a, name) == 1 })
}

// gaveUp is the ID of a request that b has cancelled.
func (s *scene) gaveUp() string {
	s.Helper()
	l := s.lock(s.a, "given up")
	ctx, cancel := context.WithCancel(s.ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if l, err := s.b.Mutex(s.env.name("given up")).Lock(ctx); err == nil {
			s.Errorf("granted beside a holder: %d", l.Token())
		}
	}()
	s.soon("one waits", func() bool { return s.waiting(s.a, "given up") == 1 })
	cancel()
	<-over
	if err := l.Release(); err != nil {
		s.Error(err)
	}
	return s.spy.id(s.env.name("given up"))
}

// absurd are tokens that no store's clock can have made.
func (s *scene) absurd() []uint64 {
	return []uint64{1<<53 - 2, 1<<53 - 1, 1 << 53, 1<<63 - 1, 1<<64 - 1}
}

// like is an ID that no request has, in the form of one that has been made.
func (s *scene) like() string {
	id := strings.ToLower(rand.Text() + rand.Text())
	return id[:min(len(id), len(s.first))]
}

// tells sends messages to b's session.
func (s *scene) tells(messages ...string) {
	s.Helper()
	s.f.Send(s.TB, s.spy.session, s.name, messages...)
}

// stands checks that nothing has come of what was sent by now: b waits, a holds, and another lock is handed over
// to b in time, by a push that comes after all those.
func (s *scene) stands() {
	s.Helper()
	other := s.lock(s.a, "other")
	name, before := s.env.name("other"), s.spy.count(s.env.name("other"))
	got := make(chan outcome, 1)
	go func() {
		l, err := s.b.Mutex(name).Lock(s.ctx)
		got <- outcome{l, err}
	}()
	s.soon("one waits for another lock", func() bool { return s.waiting(s.a, "other") == 1 })
	if err := other.Release(); err != nil {
		s.Fatal(err)
	}
	select {
	case o := <-got:
		if o.err != nil {
			s.Fatalf("Lock of another name: %v", o.err)
		}
		if n := s.spy.count(name) - before; n > exchangesOfOther {
			s.Errorf("another lock took %d exchanges", n)
		}
		if err := o.l.Release(); err != nil {
			s.Error(err)
		}
	case <-time.After(prompt):
		s.Fatal("another lock was not handed over in time")
	}
	select {
	case o := <-s.got:
		s.Fatalf("the waiter was told: %v", o)
	case <-time.After(quiet / 4):
	}
	s.keeps()
}

// keeps checks that the holder is the holder.
func (s *scene) keeps() {
	s.Helper()
	rec, err := s.sees().Inspect(s.ctx, s.name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != s.held.Token() || s.held.Err() != nil {
		s.Fatalf("Inspect = %+v, %v; want token %d alone, whose lease says %v", rec, err, s.held.Token(), s.held.Err())
	}
}

// deceived has b believe that it holds the lock. It returns nil if b does not.
func (s *scene) deceived() *holdfast.Lease {
	s.Helper()
	made := s.f.Message(s.spy.id(s.name), s.held.Token()+1, s.name)
	all := make([]string, repeats)
	for i := range all {
		all[i] = made
	}
	s.tells(all...)
	select {
	case o := <-s.got:
		if !s.f.Believed || o.err != nil {
			s.Fatalf("the waiter was told: %v", o)
		}
		s.keeps()
		return o.l
	case <-time.After(quiet):
	}
	s.stands()
	return nil
}

// ends releases a lease that the store knows nothing of.
func (s *scene) ends(l *holdfast.Lease) {
	s.Helper()
	if err := l.Release(); !errors.Is(err, holdfast.ErrLost) {
		s.Errorf("Release of a lease that is not on record: %v; want ErrLost", err)
	}
}

// left checks that a waiter that was deceived is out of the line, long before its place has lapsed, and the holder is there.
func (s *scene) left() {
	s.Helper()
	s.soon("nobody waits", func() bool { return s.waiting(s.a, "x") == 0 })
	s.keeps()
}

// handsOver releases the lock, which b must have in time, by the store's record, with a token of the store's clock.
func (s *scene) handsOver() *holdfast.Lease {
	s.Helper()
	if err := s.held.Release(); err != nil {
		s.Fatalf("Release: %v", err)
	}
	var o outcome
	select {
	case o = <-s.got:
	case <-time.After(prompt):
		s.Fatal("the lock was not handed over in time")
	}
	if o.err != nil {
		s.Fatalf("Lock: %v", o.err)
	}
	rec, err := s.sees().Inspect(s.ctx, s.name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != o.l.Token() {
		s.Fatalf("Inspect = %+v, %v; want token %d alone", rec, err, o.l.Token())
	}
	fresh := s.lock(s.a, "fresh"+itoa(s.ids)) // of a name that nobody has pushed anything for
	s.ids++
	hour := uint64(time.Hour.Microseconds())
	if token := o.l.Token(); token <= s.held.Token() || token > max(fresh.Token(), s.held.Token())+hour {
		s.Errorf("token %d after %d; another name's is %d", token, s.held.Token(), fresh.Token())
	}
	if err := fresh.Release(); err != nil {
		s.Error(err)
	}
	return o.l
}

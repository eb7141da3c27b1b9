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

// pushFixture is a lock that a holds and b waits for, while a stranger sends messages to b.
type pushFixture struct {
	*env
	f         *Forger
	a, b      *holdfast.Client
	conn      Conn // b's
	spy       *spy // of b's requests
	name      string
	mark      *holdfast.Lease // b's, of another name
	held      *holdfast.Lease
	earlier   uint64 // a token that b was granted before
	earlierID string // the ID of that request
	received  func() []string
	got       chan outcome
}

// outcome is the result of a Lock.
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

// pushFixture makes b wait, whose leases last for ttl.
func (e *env) pushFixture(f *Forger, ttl time.Duration) *pushFixture {
	e.Helper()
	s := &pushFixture{env: e, f: f, a: e.client(nil), conn: e.conn(), name: e.name("x"), got: make(chan outcome, 1)}
	s.spy = &spy{Backend: s.conn.Backend, last: map[string]asked{}}
	s.conn.Backend = s.spy
	s.b = e.clientOn(s.conn, &holdfast.Config{TTL: ttl})
	s.mark = e.lock(s.b, "mark")
	if f.Hear != nil {
		s.received = f.Hear(e.TB, s.spy.opened(), s.name)
	}
	s.held = e.lock(s.a, "x")
	s.wait()
	l := s.handOver() // a true push, which the stranger can repeat
	s.earlier, s.earlierID = l.Token(), s.spy.id(s.name)
	s.reset(l)
	return s
}

// reset releases b's lease; then a holds the lock again and b waits for it.
func (s *pushFixture) reset(l *holdfast.Lease) {
	s.Helper()
	if err := l.Release(); err != nil {
		s.Fatal(err)
	}
	s.held = s.lock(s.a, "x")
	s.wait()
}

// wait makes b wait for the lock.
func (s *pushFixture) wait() {
	s.Helper()
	s.lockAsync(s.b)
	s.until("one waits", func() bool { return s.waiting(s.a, "x") == 1 })
}

func (s *pushFixture) lockAsync(c *holdfast.Client) {
	name := s.name
	go func() {
		l, err := c.Mutex(name).Lock(s.ctx)
		s.got <- outcome{l, err}
	}()
}

// delayRequest makes b wait for another name that a holds. Its request is held back while f runs.
func (s *pushFixture) delayRequest(name string, f func()) {
	s.Helper()
	l := s.handOver()
	if err := l.Release(); err != nil {
		s.Fatal(err)
	}
	s.name = s.env.name(name)
	s.held = s.lock(s.a, name)
	deliver := s.conn.Hold()
	defer deliver()
	s.lockAsync(s.b)
	s.until("the request is under way", func() bool { return s.spy.id(s.name) != "" })
	f()
	deliver()
	s.until("one waits", func() bool { return s.waiting(s.a, name) == 1 })
}

// cancelledID returns the ID of a request that b has cancelled.
func (s *pushFixture) cancelledID() string {
	s.Helper()
	l := s.lock(s.a, "cancelled")
	ctx, cancel := context.WithCancel(s.ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if l, err := s.b.Mutex(s.env.name("cancelled")).Lock(ctx); err == nil {
			s.Errorf("granted while another held the lock: %d", l.Token())
		}
	}()
	s.until("one waits", func() bool { return s.waiting(s.a, "cancelled") == 1 })
	cancel()
	<-over
	if err := l.Release(); err != nil {
		s.Error(err)
	}
	return s.spy.id(s.env.name("cancelled"))
}

// impossibleTokens returns tokens that no store's clock can have made.
func (s *pushFixture) impossibleTokens() []uint64 {
	return []uint64{1<<53 - 2, 1<<53 - 1, 1 << 53, 1<<63 - 1, 1<<64 - 1}
}

// unknownID returns an ID that no request has, in the form of a real one.
func (s *pushFixture) unknownID() string {
	id := strings.ToLower(rand.Text() + rand.Text())
	return id[:min(len(id), len(s.earlierID))]
}

// send sends messages to b's session.
func (s *pushFixture) send(messages ...string) {
	s.Helper()
	s.f.Send(s.TB, s.spy.opened(), s.name, messages...)
}

// checkWaiting checks that the messages sent so far had no effect: b waits, a holds, and another
// lock is handed to b in time, by a push that comes after them.
func (s *pushFixture) checkWaiting() {
	s.Helper()
	s.handOverOther()
	select {
	case o := <-s.got:
		s.Fatalf("the waiter returned: %v", o)
	case <-time.After(quiet / 4):
	}
	s.checkHolder()
}

// handOverOther hands another lock to b, by a push that comes after those that were sent before.
func (s *pushFixture) handOverOther() {
	s.Helper()
	other := s.lock(s.a, "other")
	name, before := s.env.name("other"), s.spy.count(s.env.name("other"))
	got := make(chan outcome, 1)
	go func() {
		l, err := s.b.Mutex(name).Lock(s.ctx)
		got <- outcome{l, err}
	}()
	s.until("one waits for another lock", func() bool { return s.waiting(s.a, "other") == 1 })
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
	case <-time.After(promptly):
		s.Fatal("another lock was not handed over in time")
	}
}

// checkHolder checks that the holder is the same.
func (s *pushFixture) checkHolder() {
	s.Helper()
	rec, err := s.healthy().Inspect(s.ctx, s.name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != s.held.Token() || s.held.Err() != nil {
		s.Fatalf("Inspect = %+v, %v; want token %d alone, whose lease has %v", rec, err, s.held.Token(), s.held.Err())
	}
}

// deceive makes b believe that it holds the lock. It returns nil if b does not.
func (s *pushFixture) deceive() *holdfast.Lease {
	s.Helper()
	made := s.f.Message(s.spy.id(s.name), s.held.Token()+1, s.name)
	all := make([]string, repeats)
	for i := range all {
		all[i] = made
	}
	s.send(all...)
	s.handOverOther() // its push comes after those
	select {
	case o := <-s.got:
		if !s.f.Believed || o.err != nil {
			s.Fatalf("the waiter returned: %v", o)
		}
		s.checkHolder()
		return o.l
	case <-time.After(quiet):
	}
	s.checkHolder()
	return nil
}

// releaseForged releases a lease that the store does not know.
func (s *pushFixture) releaseForged(l *holdfast.Lease) {
	s.Helper()
	if err := l.Release(); !errors.Is(err, holdfast.ErrLost) {
		s.Errorf("Release of a lease without a record: %v; want ErrLost", err)
	}
}

// checkLeft checks that a waiter that was deceived has left the queue, long before its place would
// expire, and that the holder is the same.
func (s *pushFixture) checkLeft() {
	s.Helper()
	s.until("nobody waits", func() bool { return s.waiting(s.a, "x") == 0 })
	s.checkHolder()
}

// handOver releases the lock. b must get it in time, by the store's record, with a token of the
// store's clock.
func (s *pushFixture) handOver() *holdfast.Lease {
	s.Helper()
	if err := s.held.Release(); err != nil {
		s.Fatalf("Release: %v", err)
	}
	var o outcome
	select {
	case o = <-s.got:
	case <-time.After(promptly):
		s.Fatal("the lock was not handed over in time")
	}
	if o.err != nil {
		s.Fatalf("Lock: %v", o.err)
	}
	rec, err := s.healthy().Inspect(s.ctx, s.name)
	if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != o.l.Token() {
		s.Fatalf("Inspect = %+v, %v; want token %d alone", rec, err, o.l.Token())
	}
	fresh := s.lock(s.a, "fresh"+itoa(int(s.ids.Add(1)))) // of a name for which nobody has sent a push
	hour := uint64(time.Hour.Microseconds())
	if token := o.l.Token(); token <= s.held.Token() || token > max(fresh.Token(), s.held.Token())+hour {
		s.Errorf("token %d after %d; another name's is %d", token, s.held.Token(), fresh.Token())
	}
	if err := fresh.Release(); err != nil {
		s.Error(err)
	}
	return o.l
}

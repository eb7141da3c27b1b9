package drivertest

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	// crowd is how many messages a stranger sends at once.
	crowd = 2000

	// repeats is how often a stranger says the same.
	repeats = 100

	// prompt is how soon what a push tells must be known. The next renewal, which would make up for a lost
	// push, is later.
	prompt = longTTL / 6

	// exchangesOfOther is how often the store may be asked for a lock that is handed over beside a stranger's pushes.
	exchangesOfOther = 4
)

var pushes = []check{
	{"R16", "pushes for nobody", "what a stranger sends who knows no request wakes nobody, leaves nothing and delays nobody", func(e *env) {
		e.forges(func(f *Forger) {
			s := e.scene(f, e.ttl)
			defer e.leavesNothing()()
			s.tells(nonsense()...)
			var all []string
			for range crowd {
				all = append(all, f.Message(s.like(), s.held.Token()+1, s.name))
			}
			for _, token := range s.absurd() {
				all = append(all, f.Message(s.like(), token, s.name))
			}
			s.tells(all...)
			s.stands()
			s.handsOver()
		})
	}},
	{"R16", "pushes for requests", "what a stranger repeats or makes up for known requests gives a waiter no grant, and takes none", func(e *env) {
		e.forges(func(f *Forger) {
			s := e.scene(f, e.ttl)
			marked := s.mark.Token()
			given := s.gaveUp()
			var all []string
			for _, token := range append(s.absurd(), 0, s.earlier, s.held.Token()-1, s.held.Token()) {
				all = append(all, f.Message(s.spy.id(s.name), token, s.name))
			}
			made := s.held.Token() + 1 // as the store could have
			for _, id := range []string{s.first, given, s.spy.id(e.name("mark"))} {
				all = append(all, f.Message(id, made, s.name), f.Message(id, marked+1, e.name("mark")), f.Message(id, 0, s.name))
			}
			if !f.Believed {
				all = append(all, f.Message(s.spy.id(s.name), made, s.name))
			}
			if f.Hear != nil {
				heard := s.heard()
				if len(heard) == 0 {
					e.Error("drivertest: the Forger has heard nothing")
				}
				for _, said := range heard {
					all = append(all, said, strings.Replace(said, s.first, s.spy.id(s.name), 1))
				}
			}
			defer e.leavesNothing()()
			for _, m := range all { // one by one, so that the waiter can take each up
				s.tells(m)
			}
			for len(all) < crowd {
				all = append(all, all...)
			}
			s.tells(all[:crowd]...)
			s.stands()
			if err := s.mark.Err(); err != nil || s.mark.Token() != marked {
				e.Errorf("the lease that the pushes spoke of: token %d, %v", s.mark.Token(), err)
			}
			s.handsOver()
		})
	}},
	{"R16", "pushes before the answer", "what a stranger sends while a request is under way is no grant", func(e *env) {
		e.forges(func(f *Forger) {
			s := e.scene(f, e.ttl)
			s.begins("early", func() {
				id := s.spy.id(s.name)
				for _, token := range append(s.absurd(), 0, s.held.Token()) {
					s.tells(f.Message(id, token, s.name))
				}
				if !f.Believed {
					s.tells(f.Message(id, s.held.Token()+1, s.name))
				}
			})
			s.stands()
			s.handsOver()
		})
	}},
	{"R16", "pushes for latches", "what a stranger sends opens no latch, and the latch opens in time", func(e *env) {
		e.forges(func(f *Forger) {
			s := e.scene(f, e.ttl)
			name := e.name("l")
			if _, err := s.a.Latch(name).Set(e.ctx, 1); err != nil {
				e.Fatal(err)
			}
			open := make(chan error, 1)
			go func() { open <- s.b.Latch(name).Wait(e.ctx) }()
			e.soon("one waits for the latch", func() bool { return s.spy.answers(name) > 0 })
			for _, token := range append(s.absurd(), 0, 1, 2) {
				f.Send(e.TB, s.spy.session, name, f.Message(s.spy.id(name), token, name))
			}
			s.stands()
			select {
			case err := <-open:
				e.Fatalf("the latch opened (%v), although nobody has counted", err)
			default:
			}
			if _, err := s.a.Latch(name).CountDown(e.ctx, "c"); err != nil {
				e.Fatal(err)
			}
			select {
			case err := <-open:
				if err != nil {
					e.Errorf("Wait: %v", err)
				}
			case <-time.After(prompt):
				e.Error("who waits for the latch was not told")
			}
			s.handsOver()
		})
	}},
	{"R16", "a push that is believed", "a waiter that a stranger deceives learns it when the store is next asked, and has left the line then", func(e *env) {
		e.forges(func(f *Forger) {
			s := e.scene(f, e.ttl)
			defer e.leavesNothing()()
			if l := s.deceived(); l != nil {
				s.ends(l)
				s.left()
				s.waits()
			}
			s.again(s.handsOver())
			// The true grant comes while the waiter believes in the forged one.
			if l := s.deceived(); l != nil {
				if err := s.held.Release(); err != nil {
					e.Errorf("Release of the true holder: %v", err)
				}
				_ = l.Release() // by now the request has a grant; a store may take the lower token of its owner
				e.soon("the name is free", func() bool { return e.free(s.a, "x") })
				return
			}
			s.handsOver()
		})
	}},
	{"R16", "a push that is believed, renewed", "a waiter that a stranger deceives learns it at its first renewal; the true holder stays", func(e *env) {
		e.expires()
		e.forges(func(f *Forger) {
			s := e.scene(f, e.h.TTL)
			if l := s.deceived(); l != nil {
				select {
				case <-l.Done():
				case <-time.After(patience):
					e.Fatal("a lease that the store does not know of stands")
				}
				if err := l.Err(); !errors.Is(err, holdfast.ErrLost) {
					e.Errorf("Err: %v; want ErrLost", err)
				}
				s.left()
				s.waits()
			}
			s.handsOver()
		})
	}},
}

// nonsense are messages that no store sends.
func nonsense() []string {
	digits := strings.Repeat("9", 1<<16)
	return []string{
		"", " ", "  ", "\n", "0", "-1", "\x00", "\xff\xfe 1", "x y z", "x -1", "x c 1 y", "x 1 -1", digits, "x " + digits, digits + " 1",
		strings.Repeat("x", 4<<20), strings.Repeat("x 1\n", 1<<10), strings.Repeat(" ", 7999),
	}
}

// forges runs f with the harness's forger, if there can be one.
func (e *env) forges(f func(*Forger)) {
	e.Helper()
	if e.h.Forger == nil {
		e.Logf("nobody can forge a push: %s", e.h.CannotForge)
		return
	}
	f(e.h.Forger)
}

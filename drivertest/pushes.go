package drivertest

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	// burst is how many messages a stranger sends at once.
	burst = 2000

	// repeats is how often a stranger repeats a message.
	repeats = 100

	// promptly is how soon the effect of a push must be seen. The next renewal, which would make up
	// for a lost push, comes later.
	promptly = longTTL / 6

	// exchangesOfOther is how often a client may ask the store for a lock that is handed over
	// during a stranger's pushes.
	exchangesOfOther = 4
)

var pushes = []check{
	{"R16", "pushes for nobody", "pushes of a stranger that knows no request wake nobody, leave nothing and delay nobody",
		func(e *env) {
			e.withForger(func(f *Forger) {
				s := e.pushFixture(f, e.ttl)
				defer e.leavesNothing()()
				s.send(nonsense()...)
				var all []string
				for range burst {
					all = append(all, f.Message(s.unknownID(), s.held.Token()+1, s.name))
				}
				for _, token := range s.impossibleTokens() {
					all = append(all, f.Message(s.unknownID(), token, s.name))
				}
				s.send(all...)
				s.checkWaiting()
				s.handOver()
			})
		}},
	{
		"R16", "pushes for requests",
		"repeated or invented pushes of a stranger for known requests neither give a waiter a grant nor end one",
		func(e *env) {
			e.withForger(func(f *Forger) {
				s := e.pushFixture(f, e.ttl)
				marked := s.mark.Token()
				given := s.cancelledID()
				var all []string
				for _, token := range append(s.impossibleTokens(), 0, s.earlier, s.held.Token()-1, s.held.Token()) {
					all = append(all, f.Message(s.spy.id(s.name), token, s.name))
				}
				made := s.held.Token() + 1 // a token that the store could have made
				for _, id := range []string{s.earlierID, given, s.spy.id(e.name("mark"))} {
					all = append(all, f.Message(id, made, s.name), f.Message(id, marked+1, e.name("mark")), f.Message(id, 0, s.name))
				}
				if !f.Believed {
					all = append(all, f.Message(s.spy.id(s.name), made, s.name))
				}
				if f.Hear != nil {
					e.until("the Forger has received a push", func() bool { return len(s.received()) > 0 })
					for _, said := range s.received() {
						all = append(all, said, strings.Replace(said, s.earlierID, s.spy.id(s.name), 1))
					}
				}
				defer e.leavesNothing()()
				for _, m := range all { // one by one, so that the waiter can read each
					s.send(m)
				}
				for len(all) < burst {
					all = append(all, all...)
				}
				s.send(all[:burst]...)
				s.checkWaiting()
				if err := s.mark.Err(); err != nil || s.mark.Token() != marked {
					e.Errorf("the lease that the pushes name: token %d, %v", s.mark.Token(), err)
				}
				s.handOver()
			})
		}},
	{"R16", "pushes before the answer", "a push of a stranger while a request is under way is no grant", func(e *env) {
		e.withForger(func(f *Forger) {
			s := e.pushFixture(f, e.ttl)
			s.delayRequest("early", func() {
				id := s.spy.id(s.name)
				for _, token := range append(s.impossibleTokens(), 0, s.held.Token()) {
					s.send(f.Message(id, token, s.name))
				}
				if !f.Believed {
					s.send(f.Message(id, s.held.Token()+1, s.name))
				}
			})
			s.checkWaiting()
			s.handOver()
		})
	}},
	{"R16", "pushes for latches", "pushes of a stranger open no latch, and the latch opens in time", func(e *env) {
		e.withForger(func(f *Forger) {
			s := e.pushFixture(f, e.ttl)
			name := e.name("l")
			if _, err := s.a.Latch(name).Set(e.ctx, 1); err != nil {
				e.Fatal(err)
			}
			open := make(chan error, 1)
			go func() { open <- s.b.Latch(name).Wait(e.ctx) }()
			e.until("one waits for the latch", func() bool { return s.spy.answers(name) > 0 })
			for _, token := range append(s.impossibleTokens(), 0, 1, 2) {
				f.Send(e.TB, s.spy.opened(), name, f.Message(s.spy.id(name), token, name))
			}
			s.checkWaiting()
			select {
			case err := <-open:
				e.Fatalf("the latch opened (%v), although nobody has counted down", err)
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
			case <-time.After(promptly):
				e.Error("the waiter of the latch got no push")
			}
			s.handOver()
		})
	}},
	{
		"R16", "a push that is believed",
		"a waiter that a stranger deceived learns of it from the store's next answer, and has then left the queue",
		func(e *env) {
			e.withForger(func(f *Forger) {
				s := e.pushFixture(f, e.ttl)
				defer e.leavesNothing()()
				if l := s.deceive(); l != nil {
					s.releaseForged(l)
					s.checkLeft()
					s.wait()
				}
				s.reset(s.handOver())
				// The true grant comes while the waiter believes the forged one.
				if l := s.deceive(); l != nil {
					if err := s.held.Release(); err != nil {
						e.Errorf("Release of the true holder: %v", err)
					}
					_ = l.Release() // the request has a grant by now; a store may accept the lower token of its owner
					e.until("the name is free", func() bool { return e.free(s.a, "x") })
					return
				}
				s.handOver()
			})
		}},
	{
		"R16", "a push that is believed, renewed",
		"a waiter that a stranger deceived learns of it at its first renewal; the true holder stays", func(e *env) {
			e.useExpiry()
			e.withForger(func(f *Forger) {
				s := e.pushFixture(f, steadyTTL) // b renews several times while the check waits
				if l := s.deceive(); l != nil {
					select {
					case <-l.Done():
					case <-time.After(patience):
						e.Fatal("a lease without a grant at the store is valid")
					}
					var lost *holdfast.Error
					if err := l.Err(); !errors.Is(err, holdfast.ErrLost) || !errors.As(err, &lost) {
						e.Errorf("Err: %v; want ErrLost", err)
					} else if lost.Reason == holdfast.ReasonExpired || lost.Reason == holdfast.ReasonUnreachable {
						e.Errorf("Err: %v; no renewal told the waiter", err)
					}
					s.checkLeft()
					s.wait()
				}
				s.handOver()
			})
		}},
}

// nonsense returns messages that no store sends.
func nonsense() []string {
	digits := strings.Repeat("9", 1<<16)
	return []string{
		"", " ", "  ", "\n", "0", "-1", "\x00", "\xff\xfe 1", "x y z", "x -1", "x c 1 y", "x 1 -1", digits, "x " + digits,
		digits + " 1",
		strings.Repeat("x", 4<<20), strings.Repeat("x 1\n", 1<<10), strings.Repeat(" ", 7999),
	}
}

// withForger runs f with the harness's forger, if it has one.
func (e *env) withForger(f func(*Forger)) {
	e.Helper()
	if e.h.Forger == nil {
		e.Logf("nobody can forge a push: %s", e.h.CannotForge)
		return
	}
	f(e.h.Forger)
}

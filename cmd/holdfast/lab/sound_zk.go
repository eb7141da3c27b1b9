package lab

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// The schedules of rows_zk.go, run with holdfast.

// contenders waits until the folder of the lock has n nodes; -1: until there is no folder.
func (p *scenario) contenders(n int) {
	s := p.engine.(*zkEngine).own(p).zk
	path := zkRoot(p) + "/" + p.job.lock
	for {
		changed := make(chan struct{}, 1)
		f := func(zk.Event) { changed <- struct{}{} }
		names, _, _, err := s.ChildrenW(p.ctx, path, f)
		have := len(names)
		if errors.Is(err, zk.ErrNoNode) {
			have = -1
			if _, _, err = s.ExistsW(p.ctx, path, f); err == nil {
				continue // it was created in between
			}
		}
		if err != nil && have >= 0 {
			p.must(err)
		}
		if have == n {
			return
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			p.failf("holdfast: the folder has %d nodes (-1: there is none), not %d", have, n)
		}
	}
}

// waiterNext: A holds the lock, and B waits. A releases, and B gets it.
func waiterNext(p *scenario) {
	a, b, c := p.steady("A"), p.steady("B"), p.steady("C")
	g := a.locksFree()
	w := b.waits()
	p.want(c.tries() == nil, "C got the lock that A holds")
	g.finishes()
	h := w.granted(p)
	h.watch()
	h.finishes()
	p.atRest(a)
}

// lookAndWatch: A releases when the server has answered B's look at the queue, and B does not have
// the answer yet. So B looks for the node of A, and sets a watch, when the node has gone.
func lookAndWatch(p *scenario) {
	a, b := p.steady("A"), p.steady("B")
	g := a.locksFree()
	b.net.set(lateAnswers)
	w := b.asks(driver.Exclusive)
	p.contenders(2)
	p.fault("B", "B", "late answers", "the server has answered B's look at the queue, and the answer is on its way")
	g.finishes()
	p.contenders(1)
	b.net.heal()
	p.rec.add(Event{Lane: "B", Kind: Fault, Text: "has the answer, in which A's node is before its own"})
	h := w.granted(p)
	h.watch()
	h.finishes()
	p.atRest(a)
}

// waiterLeaves: A holds the lock, B and C wait, and B gives up.
func waiterLeaves(p *scenario) {
	a, b, c := p.steady("A"), p.steady("B"), p.steady("C")
	g := a.locksFree()
	used, _ := p.reads("A", g.Token())
	patience, end := context.WithCancel(p.ctx)
	defer end()
	id := b.begins(history.Event{Wait: true})
	left := make(chan error, 1)
	go func() {
		_, err := b.c.Mutex(p.job.lock).Lock(patience)
		left <- err
	}()
	select {
	case <-b.waiting:
	case err := <-left:
		p.failf("holdfast: B does not wait: %v", err)
	}
	p.rec.add(Event{Lane: "B", Kind: Does, Text: "Lock", Answer: "waits in the queue"})
	w := c.waits()
	end()
	err := <-left
	p.want(errors.Is(err, context.Canceled), "B's Lock returned %v", err)
	p.rec.add(Event{Lane: "B", Kind: Thinks, Text: "gives up"},
		history.Event{Kind: history.Cancelled, Client: "B", ID: id, Name: p.job.lock})
	p.contenders(2) // B's node has gone
	p.atRest(a)
	select {
	case <-w.done:
		p.failf("holdfast: C got the lock that A holds")
	default:
		p.show("the node before C's has gone, and C still waits for A")
	}
	p.writes("A", used, g.Token())
	g.ends()
	h := w.granted(p)
	h.watch()
	h.finishes()
	p.atRest(a)
}

// lostCreate: B holds the lock. The server creates A's node in the queue, and the answer is lost.
func lostCreate(p *scenario) {
	a, b, c := p.steady("A"), p.steady("B"), p.steady("C")
	g := b.locksFree()
	a.net.set(losing)
	w := a.asks(driver.Exclusive)
	p.contenders(2)
	p.fault("A", "A", "lost reply", "the server has created A's node; the answer is lost, and the connection breaks")
	a.net.heal()
	select {
	case <-a.waiting:
	case <-w.done:
		p.failf("holdfast: A does not wait")
	}
	p.contenders(2)
	p.show("the library has found its node by the random ID in the name: it has created no second one")
	g.finishes()
	h := w.granted(p)
	h.watch()
	h.finishes()
	h = c.tries()
	p.want(h != nil, "C did not get a free lock")
	h.ends()
	p.atRest(b)
}

// newFolder: A is cut off until its session is over, and the folder of the lock has gone. B gets the
// lock in a new one.
func newFolder(p *scenario) {
	a, b := p.user("A"), p.user("B")
	g := a.locksFree()
	used, _ := p.reads("A", g.Token())
	a.net.set(cut)
	fault := p.fault("A", "A", "cut", "loses its network: no request arrives for now, and no ping")
	g.awaitLoss()
	p.contenders(-1)
	p.show("the session of A has expired, and the server has deleted the empty folder")
	h := b.triesFree()
	p.want(h.Token() > g.Token(), "B's token %d is not larger than A's %d", h.Token(), g.Token())
	seen, _ := p.reads("B", h.Token())
	a.net.heal()
	p.rec.add(
		Event{Lane: "A", Kind: Fault, Text: "has its network back, and continues its work as if nothing had happened"},
		history.Event{Kind: history.Healed, ID: fault})
	p.want(!p.writes("A", used, g.Token()), "the resource accepted A's write")
	p.want(errors.Is(g.releases(), holdfast.ErrLost), "A's release did not report the loss")
	p.writes("B", seen, h.Token())
	h.ends()
}

// releaseCutOff: A releases while it is cut off, and its session expires. B has the lock when A reaches
// the server again.
func releaseCutOff(p *scenario) {
	a, b, c := p.user("A"), p.user("B"), p.user("C")
	g := a.locks()
	p.want(g != nil, "A did not get a free lock")
	g.works()
	a.net.set(cut)
	fault := p.fault("A", "A", "cut", "loses its network: no request arrives for now")
	released := make(chan error, 1)
	go func() { released <- g.releases() }()
	h := b.waits().granted(p)
	h.watch()
	a.net.heal()
	p.rec.add(Event{Lane: "A", Kind: Fault, Text: "has its network back"},
		history.Event{Kind: history.Healed, ID: fault})
	err := <-released
	p.want(errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrLost), "A's release returned %v", err)
	p.want(c.tries() == nil, "C got the lock that B holds")
	h.finishes()
	p.atRest(b)
}

// herdUsers is holdfast with as many waiters as in the row of the herd.
func herdUsers(p *scenario) {
	user := func(name string) *user { return p.userFor(name, zkExpiry*3/5) }
	a := user("A")
	g := a.locks()
	p.want(g != nil, "A did not get a free lock")
	w := user(herdNames[0]).waits()
	var rest sync.WaitGroup
	errs := make(chan error, len(herdNames))
	for _, name := range herdNames[1:] { // the timeline does not show them
		u := user(name)
		rest.Go(func() {
			l, err := u.c.Mutex(p.job.lock).Lock(p.ctx)
			if err == nil {
				err = l.Release()
			}
			errs <- err
		})
		select {
		case <-u.waiting:
		case <-p.ctx.Done():
			p.must(p.ctx.Err())
		}
	}
	p.show("%d clients wait, from B on", len(herdNames))
	before, began := p.packets(), time.Now()
	g.ends()
	h := w.granted(p)
	p.rate = &Rate{Waiters: len(herdNames), Requests: p.packets() - before, Window: time.Since(began), HandOver: true}
	p.show("measured at the server (mntr): %v; A's release is one of them", p.rate)
	h.ends()
	rest.Wait() // they end with the context of the scenario
	close(errs)
	for err := range errs {
		p.must(err)
	}
	p.show("the other waiters have had the lock, one after the other")
}

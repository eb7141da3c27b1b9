package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// The schedules that break the algorithms, run with holdfast. Each ends the run unless it has the
// result of its row. The checker decides whether two clients ever held the lock.

const permits = driver.Permits

// want ends the run if ok is false.
func (p *scenario) want(ok bool, format string, args ...any) {
	if !ok {
		p.failf("holdfast: "+format, args...)
	}
}

// holderDies: A dies with the lock.
func holderDies(p *scenario) {
	a, b := p.user("A"), p.user("B")
	g := a.locks()
	p.want(g != nil, "A did not get a free lock")
	a.dies("a crash cannot leave a lock without a lease, because one step takes both")
	died := time.Now()
	w := b.waits()
	h := w.granted(p)
	p.show("B got the lock %v after A's crash; the lease was %v", time.Since(died).Round(10*time.Millisecond), soundTTL)
	h.watch()
	h.finishes()
}

// slowHolder: A works for longer than its lease.
func slowHolder(p *scenario) {
	a, b, c := p.userFor("A", longTTL), p.user("B"), p.user("C")
	g := a.locksFree()
	since := time.Now()
	used, _ := p.reads("A", g.Token())
	w := b.waits()
	n := 0
	for n < 3 || time.Since(since) < longTTL*5/4 {
		select {
		case err := <-a.renewed:
			if err == nil {
				n++
			}
		case <-g.Done():
			p.failf("holdfast: A has lost the lock: %v", g.Err())
		case <-p.ctx.Done():
			p.must(p.ctx.Err())
		}
	}
	p.rec.add(Event{Lane: "A", Kind: Thinks, Text: fmt.Sprintf(
		"is slow, but has renewed its lease %d times: it has held the lock for %v, with a lease of %v", n,
		time.Since(since).Round(10*time.Millisecond), longTTL)})
	p.want(c.tries() == nil, "C got the lock that A holds")
	p.writes("A", used, g.Token())
	g.ends()
	h := w.granted(p)
	h.watch()
	h.works()
	p.want(c.tries() == nil, "C got the lock that B holds")
	h.ends()
}

// cutOff: A cannot reach the server for longer than its lease, and continues its work after another
// has had the lock.
func cutOff(p *scenario) {
	a, b, c := p.user("A"), p.user("B"), p.user("C")
	g := a.locksFree()
	used, _ := p.reads("A", g.Token())
	a.net.set(cut)
	fault := p.fault("A", "A", "cut", "loses its network: no request arrives for now, and no renewal")
	w := b.waits()
	g.awaitLoss()
	h := w.granted(p)
	h.watch()
	seen, _ := p.reads("B", h.Token())
	a.net.heal()
	p.rec.add(
		Event{Lane: "A", Kind: Fault,
			Text: "has its network back: its delayed requests arrive now, and it continues its work as if nothing had happened"},
		history.Event{Kind: history.Healed, ID: fault})
	p.want(!p.writes("A", used, g.Token()), "the resource accepted A's write")
	p.want(errors.Is(g.releases(), holdfast.ErrLost), "A's release did not report the loss")
	p.want(c.tries() == nil, "C got the lock that B holds")
	p.writes("B", seen, h.Token())
	h.ends()
}

// rivalTries: B tries the lock while A holds it.
func rivalTries(p *scenario) { rival(p, "") }

// rivalOfAnyClock: the same, for rows about the clocks of clients.
func rivalOfAnyClock(p *scenario) {
	rival(p, "B's clock may show any time: clients send no times to the server")
}

func rival(p *scenario, note string) {
	a, b := p.steady("A"), p.steady("B")
	g := a.locksFree()
	used, _ := p.reads("A", g.Token())
	if note != "" {
		p.show("%s", note)
	}
	p.want(b.tries() == nil, "B got the lock that A holds")
	p.writes("A", used, g.Token())
	g.ends()
	h := b.triesFree()
	h.finishes()
}

// raceForDead: three clients want the lock of a dead holder.
func raceForDead(p *scenario) {
	a := p.user("A")
	p.want(a.locks() != nil, "A did not get a free lock")
	a.dies("while it holds the lock")
	var line []*queued
	for _, name := range []string{"B", "C", "D"} {
		line = append(line, p.user(name).waits())
	}
	for _, w := range line {
		h := w.granted(p)
		h.watch()
		h.works()
		p.want(h.releases() == nil, "the release of %s failed", h.u.name)
	}
}

// lateRenewal: a renewal of A is on its way when A releases, and arrives after the release.
func lateRenewal(p *scenario) {
	a, b := p.user("A"), p.user("B")
	g := a.locksFree()
	g.works()
	a.link.set(stalling)
	select {
	case <-a.link.hit:
	case <-p.ctx.Done():
		p.must(p.ctx.Err())
	}
	p.rec.add(Event{Lane: "A", Kind: Does, Text: "a renewal is on its way, delayed by the network"})
	g.ends()
	for len(a.renewed) > 0 { // of earlier ones
		<-a.renewed
	}
	a.link.heal()
	select {
	case <-a.renewed: // it has been answered
	case <-p.ctx.Done():
		p.must(p.ctx.Err())
	}
	p.rec.add(
		Event{Lane: "A", Kind: Fault, Text: "the renewal has arrived after the release: the server had nothing to renew"})
	h := b.tries()
	p.want(h != nil, "B did not get the lock that A released")
	h.watch()
	h.finishes()
	p.atRest(b)
}

// atRest records the store's state when no client holds the lock any more.
func (p *scenario) atRest(u *user) {
	r, err := u.c.Inspect(p.ctx, p.job.lock)
	p.must(err)
	n := 0
	for i := range r.Holders {
		n += max(r.Holders[i].Permits, 1)
	}
	p.rec.add(Event{Lane: Stage, Kind: Shows, Text: fmt.Sprintf("at the server: %d holders, %d waiters", len(r.Holders),
		r.Waiting)},
		history.Event{Kind: history.State, Name: p.job.lock, N: int32(n), Limit: int32(r.Limit), Value: int64(r.Waiting),
			Token: r.Token})
}

// failedRenewal: a renewal of A fails.
func failedRenewal(p *scenario) {
	a, b := p.user("A"), p.user("B")
	g := a.locksFree()
	since := time.Now()
	used, _ := p.reads("A", g.Token())
	a.link.set(failing)
	failed, n := false, 0
	for !failed || n < 3 || time.Since(since) < longTTL*5/4 {
		select {
		case err := <-a.renewed:
			if err != nil && !failed {
				failed = true
				p.fault("A", "A", "error", "a renewal fails: %v", err)
			}
			if err == nil && failed {
				if n++; n == 1 {
					p.rec.add(Event{Lane: "A", Kind: Thinks, Text: "the next renewal has succeeded"})
				}
			}
		case <-g.Done():
			p.failf("holdfast: A has lost the lock: %v", g.Err())
		case <-p.ctx.Done():
			p.must(p.ctx.Err())
		}
	}
	p.rec.add(Event{Lane: "A", Kind: Thinks, Text: fmt.Sprintf("has held the lock for %v, with a lease of %v",
		time.Since(since).Round(10*time.Millisecond), longTTL)})
	p.want(b.tries() == nil, "B got the lock that A holds")
	p.writes("A", used, g.Token())
	g.ends()
	h := b.triesFree()
	h.finishes()
}

// lostMessage: the message that hands the lock to B is lost.
func lostMessage(p *scenario) {
	a, b := p.user("A"), p.user("B")
	g := a.locksFree()
	w := b.waits()
	b.link.set(losingMessages)
	p.fault("B", "B", "lost message", "from here on all messages of the server to B are lost")
	g.finishes()
	freed := time.Now()
	h := w.granted(p)
	h.watch()
	p.rec.add(Event{Lane: "B", Kind: Thinks, Text: fmt.Sprintf(
		"has learned from the renewal of its place in the queue that it holds the lock, %v after the release",
		time.Since(freed).Round(10*time.Millisecond))})
	h.finishes()
	p.atRest(a)
}

// lostRelease: the answer to A's release is lost.
func lostRelease(p *scenario) {
	a, b, c, d := p.steady("A"), p.steady("B"), p.steady("C"), p.steady("D")
	ga, gb := a.acquires(), b.acquires()
	p.want(ga != nil && gb != nil, "A and B did not get the two permits")
	p.want(c.acquires() == nil, "C got a third permit")
	a.link.set(losing)
	err := ga.releases()
	p.show("the answer to A's release was lost: the library repeats the release until it is answered or the lease expires")
	p.want(err == nil || errors.Is(err, holdfast.ErrUncertain), "A's release returned %v", err)
	gc := c.acquires()
	p.want(gc != nil, "C did not get the permit of A")
	p.want(d.acquires() == nil, "D got a third permit")
	p.want(gb.releases() == nil && gc.releases() == nil, "a release failed")
	p.atRest(d)
}

// permitHoldersDie: both holders of two permits die.
func permitHoldersDie(p *scenario) {
	a, b, c := p.user("A"), p.user("B"), p.user("C")
	p.want(a.acquires() != nil && b.acquires() != nil, "A and B did not get the two permits")
	a.dies("the process is killed")
	b.dies("the process is killed")
	died := time.Now()
	id := c.begins(history.Event{N: 2, Limit: 2, Mode: permits, Wait: true})
	l, err := c.c.Semaphore(p.job.lock, 2).Acquire(p.ctx, 2)
	g := c.result("Acquire 2", id, l, err, 0)
	p.want(g != nil, "C did not get the permits of the dead holders")
	p.show("C got both permits %v after the crashes; the lease was %v", time.Since(died).Round(10*time.Millisecond),
		soundTTL)
	g.ends()
	p.atRest(c)
}

// overtaken: A's grant has ended at the server, and B has the lock. A is notified, and the resource
// refuses it.
func overtaken(p *scenario, g *grant, used int, b *user) {
	h := b.tries()
	p.want(h != nil, "B did not get a lock that is free at the server")
	h.watch()
	p.want(h.Token() > g.Token(), "B's token %d is not larger than A's %d", h.Token(), g.Token())
	seen, _ := p.reads("B", h.Token())
	p.show(
		"no lock on such a server can prevent this. But the library reports the loss to A, and the resource refuses A's older token")
	p.want(!p.writes("A", used, g.Token()), "the resource accepted A's write")
	g.awaitLoss()
	p.want(errors.Is(g.releases(), holdfast.ErrLost), "A's release did not report the loss")
	p.writes("B", seen, h.Token())
	h.ends()
}

// failoverSound: the failover, first with replicas=1, then without.
func failoverSound(p *scenario) {
	r := p.pair()
	sure := p.userWith("C", holdfast.DefaultTTL, redislock.Config{WaitReplicas: 1})
	a := p.user("A")
	r.cutOff()
	p.show("C requires that one replica confirms its grant (replicas=1); A does not")
	p.want(sure.tries() == nil, "C got a lock that no replica has confirmed")
	g := a.triesFree()
	used, _ := p.reads("A", g.Token())
	r.failOver()
	moveTo(a, r)
	b := p.user("B")
	overtaken(p, g, used, b)
}

// moveTo lets a user find the promoted replica, as it would through a sentinel.
func moveTo(u *user, r *pair) {
	old := u.link.redirect(r.dial())
	u.cleanup = append(u.cleanup, func() { _ = old.Close() })
}

func (r *pair) dial() redislock.Conn {
	c, err := dial(r.replica.URL())
	r.must(err)
	return c
}

// waitSound: a grant that requires a confirmation, and cannot get it.
func waitSound(p *scenario) {
	r := p.pair()
	a := p.userWith("A", holdfast.DefaultTTL, redislock.Config{WaitReplicas: 1})
	r.cutOff()
	p.want(a.tries() == nil, "A got a lock that no replica has confirmed")
	p.show("the library cancelled the grant, and A knows that it does not hold the lock")
	r.failOver()
	b := p.steady("B")
	h := b.triesFree()
	h.finishes()
}

// earlyEnd: the server ends A's lease long before its time.
func earlyEnd(p *scenario) {
	a, b := p.user("A"), p.user("B")
	g := a.locksFree()
	used, _ := p.reads("A", g.Token())
	p.must(b.c.Break(p.ctx, p.job.lock, g.Token(), ""))
	p.rec.addFormal(history.Event{Kind: history.Broken, Client: Stage, Name: p.job.lock, Token: g.Token()})
	p.fault(Stage, "server", "clock",
		"the server ends A's lease early. (The lab cannot set the server's clock. It removes the grant instead, which has the same effect on A.)")
	overtaken(p, g, used, b)
}

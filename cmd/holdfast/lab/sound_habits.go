package lab

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// The schedules of rows_habits.go, run with holdfast.

// freeLock: one try gets a lock that is free.
func freeLock(p *scenario) {
	a := p.steady("A")
	g := a.triesFree()
	g.finishes()
	p.atRest(a)
}

// lostGrant: the answer with A's grant is lost, and the library asks again.
func lostGrant(p *scenario) {
	a, b := p.steady("A"), p.steady("B")
	a.link.set(losing)
	p.fault("A", "A", "lost reply", "the answer to A's next request is lost")
	g := a.locks()
	p.want(g != nil, "A did not get a free lock")
	p.show("the library has sent the request again, under the same ID, and has the answer")
	g.watch()
	g.works()
	p.want(b.tries() == nil, "B got the lock that A holds")
	g.ends()
	p.atRest(b)
}

// deadWaiter: A holds the lock, B and C wait, and B dies. A releases, and C gets the lock.
func deadWaiter(p *scenario) {
	a, b, c := p.user("A"), p.user("B"), p.user("C")
	g := a.locksFree()
	b.waits()
	w := c.waits()
	b.dies("while it waits")
	g.finishes()
	freed := time.Now()
	h := w.granted(p)
	p.show("C got the lock %v after A's release; a dead waiter delays the others by a TTL at most, which is %v",
		time.Since(freed).Round(10*time.Millisecond), soundTTL)
	h.watch()
	h.finishes()
	p.atRest(c)
}

// writerWaits: a reader comes while another reads and a writer waits. The writer comes first.
func writerWaits(p *scenario) {
	a, b, c := p.steady("A"), p.steady("B"), p.steady("C")
	id := a.begins(history.Event{Mode: driver.Shared})
	l, err := a.c.RWMutex(p.job.lock).TryRLock(p.ctx)
	g := a.result("TryRLock", id, l, err, p.rec.now())
	p.want(g != nil, "A did not get a free lock")
	w := b.waitsFor(driver.Exclusive)
	late := c.waitsFor(driver.Shared)
	g.ends()
	h := w.granted(p)
	h.watch()
	select {
	case <-late.done:
		p.failf("holdfast: C reads while B writes")
	default:
	}
	h.finishes()
	h = late.granted(p)
	h.ends()
	p.atRest(c)
}

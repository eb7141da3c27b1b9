package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// free waits until a name can be locked, and returns when that was.
func (p *peer) free(r func() *driver.Request) time.Time {
	p.t.Helper()
	var at time.Time
	until(p.t, "free", func() bool {
		q := once(r())
		reply := p.acquire(q)
		if at = time.Now(); reply.Token != 0 {
			p.release(driver.Hold{Name: q.Name, ID: q.ID, Token: reply.Token})
		} else {
			time.Sleep(20 * time.Millisecond) // each try writes
		}
		return reply.Token != 0
	})
	return at
}

// A minimum hold continues after its holder's session has ended, and ends in time. A waiter that
// was in the queue all the time gets the lock then.
func TestMinHoldPastDeath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		newRequest func(p *peer) *driver.Request
	}{
		{"lock", func(p *peer) *driver.Request { return p.req("x") }},
		{"reader", func(p *peer) *driver.Request {
			r := p.req("x")
			r.ReadWrite = true
			return r
		}},
		{"permits", func(p *peer) *driver.Request { return p.permits("s", 2, 2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, cfg := common(t)
			z := newTree(t, server.Addr)
			a, b, w := newPeer(t, cfg), newPeer(t, cfg), newPeer(t, cfg)
			const hold = 12 * time.Second // the test inspects the name within it
			r := c.newRequest(a)
			r.MinHold = hold
			if r.ReadWrite {
				r.Mode = driver.Shared
			}
			began := time.Now()
			h := a.get(r)
			wr := c.newRequest(w)
			reply := w.refused(wr)
			server.Expire(zklock.Credentials(a.Session))
			var rec driver.Record
			until(t, "its nodes are gone", func() bool {
				rec = b.inspect(h.Name)
				return len(rec.Holders) == 1 && rec.Holders[0].Kept
			})
			if kept := rec.Holders[0]; kept.Left <= 0 || kept.Left > hold || kept.Token != h.Token {
				t.Errorf("%+v", rec.Holders)
			}
			g := w.woken(wr, reply)
			if d := time.Since(began); d < hold {
				t.Errorf("granted after %v of a minimum hold of %v", d, hold)
			}
			w.release(g)
			z.empty(cfg.Root)
		})
	}
}

// Nobody waits. A mark whose time is over blocks nobody and is in no list, and the next Inspect
// deletes it.
func TestExpiredMarks(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	x, s := a.req("x"), a.permits("s", 2, 3)
	x.MinHold, s.MinHold = 300*time.Millisecond, 300*time.Millisecond
	a.get(x)
	a.get(s)
	server.Expire(zklock.Credentials(a.Session))
	until(t, "over", func() bool { return b.inspect("x").Kind == driver.Unused && b.inspect("s").Kind == driver.Unused })
	if n := len(z.children(cfg.Root+"/x")) + len(z.children(cfg.Root+"/s/leases")); n != 0 {
		t.Fatalf("%d marks are left", n)
	}
	// A name that is not in use is free for any kind.
	if _, err := b.SetCount(within(t), "x", 1); err != nil {
		t.Errorf("SetCount: %v", err)
	}
	must(t, "remove", b.RemoveLatch(within(t), "x"))
	b.release(b.get(once(b.req("x"))))
	b.release(b.get(once(b.permits("s", 3, 3))))
	z.empty(cfg.Root + "/x")
	z.empty(cfg.Root + "/s")
}

// Another program's contender waits behind an expired mark. Any refused request of holdfast deletes
// the mark.
func TestExpiredMarkBeforeForeignContender(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	x := a.req("x")
	x.MinHold = 500 * time.Millisecond
	a.get(x)
	server.Expire(zklock.Credentials(a.Session))
	other := z.make(cfg.Root+"/x/_c_0d0c1f39-7d7c-4d7c-8e6e-0242ac120002-lock-", zk.EphemeralSequential)
	until(t, "the mark is gone", func() bool {
		b.refused(once(b.req("x")))
		left := z.children(cfg.Root + "/x")
		return len(left) == 1 && cfg.Root+"/x/"+left[0] == other
	})
}

// A grant with a minimum hold is adopted. The name stays taken until the minimum hold is over,
// whoever releases it, and the marks go.
func TestMinHoldAdopted(t *testing.T) {
	t.Parallel()
	for name, newRequest := range map[string]func(p *peer) *driver.Request{
		"lock":    func(p *peer) *driver.Request { return p.req("x") },
		"reader":  func(p *peer) *driver.Request { return p.shared("x") },
		"permits": func(p *peer) *driver.Request { return p.permits("x", 2, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, cfg := common(t)
			z := newTree(t, server.Addr)
			a, b, c := newPeer(t, cfg), newPeer(t, cfg), newPeer(t, cfg)
			const hold = 8 * time.Second // the test inspects the name within it
			r := newRequest(a)
			r.MinHold = hold
			began := time.Now()
			h := a.get(r)
			id := b.req("x").ID
			must(t, "Adopt", b.Adopt(within(t), h, id, ""))
			if ch := a.renew(h); ch.State != driver.Gone {
				t.Errorf("the giver's Renew: %+v", ch)
			}
			must(t, "Close", a.Close(within(t)))
			b.release(driver.Hold{Name: h.Name, ID: id, Token: h.Token})
			rec := c.inspect("x")
			if len(rec.Holders) != 1 || !rec.Holders[0].Kept || rec.Holders[0].Token != h.Token {
				t.Errorf("%+v", rec)
			}
			at := c.free(func() *driver.Request {
				if q := newRequest(c); q.Mode == driver.Permits {
					return q
				}
				return c.req("x")
			})
			if d := at.Sub(began); d < hold && name != "permits" {
				t.Errorf("free after %v of %v", d, hold)
			}
			z.empty(cfg.Root + "/x")
		})
	}
}

// A cancelled request leaves no minimum hold behind.
func TestMinHoldCancelled(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	for range testenv.Rounds(25, 100) {
		for _, r := range []*driver.Request{a.req("x"), a.permits("s", 3, 3)} {
			r.MinHold = time.Hour
			a.get(r)
			must(t, "Cancel", a.Cancel(within(t), r.Name, r.ID))
		}
		b.release(b.get(once(b.req("x"))))
		b.release(b.get(once(b.permits("s", 3, 3))))
	}
}

// The public option: a job runs once per tick on one of several machines, even if that machine
// dies.
func TestOncePerTick(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	first, s := spied(t, cfg)
	c := client(t, cfg, longTTL)
	began := time.Now()
	const tick = 1500 * time.Millisecond
	l, err := first.Mutex("job", holdfast.MinHold(tick)).TryLock(within(t))
	must(t, "TryLock", err)
	must(t, "Release", l.Release())
	server.Expire(zklock.Credentials(s.last()))
	ctx, cancel := context.WithTimeout(within(t), limit)
	defer cancel()
	l2, err := c.Mutex("job", holdfast.MinHold(tick)).Lock(ctx)
	must(t, "Lock", err)
	if d := time.Since(began); d < tick {
		t.Errorf("again after %v; the tick is %v", d, tick)
	}
	must(t, "Release", l2.Release())
}

// A node with the name of a mark but other data keeps the name taken, and is not deleted.
func TestForgedMark(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	path := z.make(cfg.Root+"/x/_c_0f8fad5b-d9cb-869f-b165-70867728950e-lock-", zk.EphemeralSequential)
	p := newPeer(t, cfg)
	w := p.req("x")
	reply := p.refused(w)
	p.refused(once(p.req("x")))
	z.delete(path)
	p.release(p.woken(w, reply))
	z.empty(cfg.Root + "/x")
}

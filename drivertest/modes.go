package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

var modes = []check{
	{"R7", "readers and a writer", "readers share; a writer waits for all of them; a later reader waits behind the writer",
		func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			h1, h2 := a.get(a.shared("x")), b.get(b.shared("x"))
			writer := c.joinQueue(c.req("x"))
			b.refused(once(a.shared("x")))
			reader := b.joinQueue(b.shared("x"))
			if reader.reply.Ahead != 1 {
				e.Errorf("Ahead = %d; want 1", reader.reply.Ahead)
			}
			a.release(h1)
			e.noPush(writer)
			b.release(h2)
			c.release(writer.pushed())
			reader.pushed()
		}},
	{
		"R7", "readers enter together",
		"when a writer releases, all readers at the head of the queue are let in, up to the next writer", func(e *env) {
			a, b := e.peer(), e.peer()
			h := a.get(a.req("x"))
			var reqs []*driver.Request
			var replies []driver.Reply
			for i := range 6 {
				r := b.shared("x")
				if i == 4 {
					r = b.req("x")
				}
				reqs, replies = append(reqs, r), append(replies, b.refused(r))
			}
			a.release(h)
			for i := range 4 {
				if b.waitPush(reqs[i], &replies[i], patience) == 0 {
					e.Fatalf("reader %d was not served with the others", i)
				}
			}
			if rec := a.inspect("x"); len(rec.Holders) != 4 || rec.Waiting != 2 || rec.Holders[0].Mode != driver.Shared {
				e.Errorf("%d holders, %d waiting; want 4 and 2", len(rec.Holders), rec.Waiting)
			}
		}},
	{
		"R6", "dead reader",
		"when the lease of a dead reader has expired, the writer gets the lock, but not before the other readers release",
		func(e *env) {
			e.useExpiry()
			a, b, c := e.shortPeer(), e.peer(), e.peer()
			start := time.Now()
			a.get(a.shared("x"))
			h := b.get(b.shared("x"))
			r := c.req("x")
			reply := c.refused(r)
			e.sleepPastTTL()
			c.refused(once(c.req("x")))
			if ch := b.renew(h); ch.State != 0 {
				e.Fatalf("the other reader's Renew = %+v", ch)
			}
			b.release(h)
			if c.waitGrant(r, reply, patience) == 0 {
				e.Fatal("the writer was not served")
			}
			if d := time.Since(start); d < e.h.TTL {
				e.Errorf("the writer was served %v after a dead reader had asked; the TTL is %v", d, e.h.TTL)
			}
		}},
	{"R7", "permits", "permits are granted up to the limit, no further, and can be granted again after a release",
		func(e *env) {
			a, b := e.peer(), e.peer()
			h := a.get(a.permits("x", 3, 5))
			h2 := b.get(b.permits("x", 2, 5))
			b.refused(once(b.permits("x", 1, 5)))
			if rec := b.inspect("x"); rec.Kind != driver.Semaphore || rec.Limit != 5 || len(rec.Holders) != 2 ||
				rec.Holders[0].N != 3 {
				e.Errorf("Inspect = %+v", rec)
			}
			b.release(h2)
			b.get(b.permits("x", 1, 5))
			b.get(b.permits("x", 1, 5))
			b.refused(once(b.permits("x", 1, 5)))
			a.release(h)
			b.get(b.permits("x", 3, 5))
		}},
	{"R7", "a large request", "small requests that would fit do not starve a large one", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.permits("x", 3, 4))
		large, small := b.permits("x", 4, 4), b.permits("x", 1, 4)
		wl := b.refused(large)
		a.refused(once(a.permits("x", 1, 4)))
		ws := b.refused(small)
		a.release(h)
		token := b.waitPush(large, &wl, patience)
		if token == 0 {
			e.Fatal("the large request was not served")
		}
		a.refused(once(a.permits("x", 1, 4)))
		b.release(driver.Hold{Name: large.Name, ID: large.ID, Token: token})
		if b.waitPush(small, &ws, patience) == 0 {
			e.Fatal("the small request was not served")
		}
	}},
	{"R6", "a dead holder's permits", "each grant of permits has its own lease; a dead holder's permits become free",
		func(e *env) {
			e.useExpiry()
			a, b := e.shortPeer(), e.peer()
			start := time.Now()
			a.get(a.permits("x", 2, 3))
			b.get(b.permits("x", 1, 3))
			r := b.permits("x", 2, 3)
			token := b.waitGrant(r, b.ask(r), e.h.TTL+patience)
			if d := time.Since(start); token == 0 || d < e.h.TTL || d > e.h.TTL+e.slack() {
				e.Errorf("a dead holder's permits became free, token %d, after %v; the TTL is %v", token, d, e.h.TTL)
			}
			if rec := b.inspect("x"); len(rec.Holders) != 2 {
				e.Errorf("%d holders; want 2", len(rec.Holders))
			}
		}},
	{"R9", "kinds", "a name in use as one kind refuses another, and another limit, until it is free", func(e *env) {
		a, b := e.peer(), e.peer()
		refuse := func(what string, r *driver.Request) {
			e.Helper()
			for _, wait := range []bool{false, true} {
				r.Wait = wait
				if _, err := b.Acquire(e.ctx, r); !errors.Is(err, driver.ErrKind) {
					e.Errorf("%s: %v; want ErrKind", what, err)
				}
			}
		}
		h := a.get(a.req("x"))
		refuse("permits of a lock", b.permits("x", 1, 2))
		if _, err := b.SetCount(e.ctx, h.Name, 3); !errors.Is(err, driver.ErrKind) {
			e.Errorf("a latch of a lock: %v; want ErrKind", err)
		}
		a.release(h)
		h = a.get(a.shared("x"))
		refuse("permits of a read lock", b.permits("x", 1, 2))
		a.release(h)
		h = a.get(a.permits("x", 1, 2))
		refuse("a lock of a semaphore", b.req("x"))
		refuse("a read lock of a semaphore", b.shared("x"))
		refuse("another limit", b.permits("x", 1, 3))
		if rec := a.inspect("x"); rec.Waiting != 0 || len(rec.Holders) != 1 {
			e.Errorf("Inspect = %+v; want one holder and nobody waiting", rec)
		}
		a.release(h)
		a.limitEnds("x")
		b.release(b.get(b.permits("x", 3, 3)))
		b.limitEnds("x")
		b.get(b.req("x"))
	}},
	{"R4", "downgrade", "a writer becomes a reader in one step: readers at the head get in, the next writer does not",
		func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			h := a.get(a.req("x"))
			rr, rw := b.shared("x"), c.req("x")
			wr, ww := b.refused(rr), c.refused(rw)
			if err := a.Downgrade(e.ctx, h); err != nil {
				e.Fatalf("Downgrade: %v", err)
			}
			token := b.waitPush(rr, &wr, patience)
			if token == 0 {
				e.Fatal("the reader was not let in")
			}
			if c.waitPush(rw, &ww, quiet) != 0 {
				e.Fatal("a writer was granted while readers held the lock")
			}
			if ch := a.renew(h); ch.State != 0 {
				e.Fatalf("Renew after Downgrade = %+v", ch)
			}
			b.release(driver.Hold{Name: rr.Name, ID: rr.ID, Token: token})
			a.release(h)
			if c.waitPush(rw, &ww, patience) == 0 {
				e.Fatal("the writer was not served")
			}
			if err := a.Downgrade(e.ctx, h); !errors.Is(err, driver.ErrTaken) {
				e.Errorf("Downgrade of a grant that has ended: %v; want ErrTaken", err)
			}
		}},
}

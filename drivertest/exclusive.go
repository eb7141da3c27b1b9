package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

var exclusive = []check{
	{"R4", "one holder", "while one holds, another request is refused, learns the holder, and leaves nothing behind",
		func(e *env) {
			a, b := e.peer(), e.peer()
			r := a.req("x")
			h := a.get(r)
			if h.Token == 0 {
				e.Fatal("token 0")
			}
			reply := b.refused(once(b.req("x")))
			if reply.Wake != nil {
				e.Error("a request that does not wait got a Wake")
			}
			// A server of a quorum that was late has granted a token of its own, until the holder corrects it.
			for end := time.Now().Add(patience); reply.Holder != nil && reply.Holder.Token != h.Token &&
				time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				reply = b.refused(once(b.req("x")))
			}
			if w := reply.Holder; w == nil || w.ID != r.ID || w.Token != h.Token || w.Mode != driver.Exclusive ||
				w.Info != r.Info || w.Left <= 0 || w.Left > e.ttl {
				e.Errorf("Holder = %+v; want id %s, token %d, info %q, 0 < left ≤ TTL", w, r.ID, h.Token, r.Info)
			}
			if rec := b.inspect("x"); rec.Kind != driver.Lock || rec.Waiting != 0 || len(rec.Holders) != 1 ||
				rec.Token != h.Token || rec.Name != r.Name {
				e.Errorf("Inspect = %+v; want one holder and nobody waiting", rec)
			}
			a.release(h)
			if rec := b.inspect("x"); rec.Kind != driver.Unused || len(rec.Holders) != 0 {
				e.Errorf("after release Inspect = %+v; want unused", rec)
			}
			b.get(once(b.req("x")))
		}},
	{"R1", "never waits", "Acquire of a held lock answers at once, whether it joins the queue or not", func(e *env) {
		a, b := e.peer(), e.peer()
		a.get(a.req("x"))
		for _, r := range []*driver.Request{once(b.req("x")), b.req("x")} {
			ctx, cancel := context.WithTimeout(e.ctx, patience)
			if reply, err := b.Acquire(ctx, r); err != nil || reply.Token != 0 {
				e.Errorf("Acquire = %+v, %v; want an answer within %v: not granted", reply, err, patience)
			}
			cancel()
		}
	}},
	{"R5", "repeat", "the same request again returns the same grant, with a full lease", func(e *env) {
		e.useExpiry()
		b := e.peer()
		e.retrySlow(func() (slow bool) {
			a := e.shortPeer()
			r := a.req("x")
			life := proof{e, a, time.Now()}
			h := a.get(r)
			for range 3 {
				time.Sleep(e.h.TTL / 2)
				if life.prove("the request again", func() bool {
					var reply driver.Reply
					err := e.answered(func() (err error) { reply, err = a.Acquire(e.ctx, r); return err })
					return err == nil && reply.Token == h.Token
				}) {
					return true
				}
				if b.ask(once(b.req("x"))).Token != 0 {
					if !life.over() {
						e.Fatal("granted while another held the lock")
					}
					return true
				}
			}
			if rec := b.inspect("x"); len(rec.Holders) > 1 {
				e.Errorf("%d holders after repeated requests", len(rec.Holders))
			}
			return false
		})
	}},
	{"R4", "renew", "a renewed lease remains; nobody else gets the lock meanwhile", func(e *env) {
		e.useExpiry()
		b := e.peer()
		e.retrySlow(func() (slow bool) {
			a := e.shortPeer()
			r := a.req("x")
			life := proof{e, a, time.Now()}
			h := a.get(r)
			for range 5 {
				time.Sleep(e.h.TTL / 3)
				if life.prove("Renew", func() bool { return a.tryRenew(h) }) {
					return true
				}
				if b.ask(once(b.req("x"))).Token != 0 {
					if !life.over() {
						e.Fatal("granted while another held the lock")
					}
					return true
				}
			}
			return false
		})
	}},
	{"R6", "dead holder", "a lease that is not renewed expires, not before its TTL and not long after", func(e *env) {
		e.useExpiry()
		a, b := e.shortPeer(), e.peer()
		start := time.Now()
		h := a.get(a.req("x"))
		token := uint64(0)
		for token == 0 && time.Since(start) < e.h.TTL+e.slack() {
			if token = b.ask(once(b.req("x"))).Token; token == 0 {
				time.Sleep(e.h.TTL / 20)
			}
		}
		if d := time.Since(start); token <= h.Token || d < e.h.TTL {
			e.Errorf("token %d after %d, %v after the holder asked; the TTL is %v", token, h.Token, d, e.h.TTL)
		}
	}},
	{"R12", "release after expiry", "an expired grant has ended: Release, Renew and Acquire report that", func(e *env) {
		e.useExpiry()
		a, b := e.shortPeer(), e.peer()
		h := a.get(a.req("x"))
		e.sleepPastTTL()
		e.until("the grant has expired", func() bool { return len(b.inspect("x").Holders) == 0 }) // a store may be late
		if ch := a.renew(h); ch.State != driver.Gone {
			e.Errorf("Renew of an expired grant = %+v; want Gone", ch)
		}
		if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrGone) {
			e.Errorf("Release of an expired grant: %v; want ErrGone", err)
		}
		hb := b.get(once(b.req("x")))
		if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrTaken) {
			e.Errorf("Release of an expired grant that was taken: %v; want ErrTaken", err)
		}
		if ch := a.renew(h); ch.State != driver.Gone {
			e.Errorf("Renew of a grant that was taken = %+v; want Gone", ch)
		}
		if ch := b.renew(hb); ch.State != 0 {
			e.Errorf("the new holder's Renew = %+v", ch)
		}
		b.release(hb)
	}},
	{"R4", "double release", "a second release is reported and affects nobody", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.req("x"))
		a.release(h)
		if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrGone) {
			e.Errorf("second Release: %v; want ErrGone", err)
		}
		hb := b.get(b.req("x"))
		if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrTaken) {
			e.Errorf("Release when another holds: %v; want ErrTaken", err)
		}
		a.refused(once(a.req("x")))
		b.release(hb)
	}},
	{"R4", "not the owner", "a wrong token or ID releases, renews and cancels nothing", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.req("x"))
		for _, wrong := range []driver.Hold{
			{Name: h.Name, ID: h.ID, Token: h.Token + 2},
			{Name: h.Name, ID: h.ID, Token: h.Token + 1},
			{Name: h.Name, ID: b.req("x").ID, Token: h.Token},
		} {
			err := e.answered(func() error { return b.Release(e.ctx, wrong, 0) })
			if !driver.IsOver(err) {
				e.Errorf("Release(%+v): %v; want ErrGone or ErrTaken", wrong, err)
			}
			if ch := b.renew(wrong); ch.State != driver.Gone {
				e.Errorf("Renew(%+v) = %+v; want Gone", wrong, ch)
			}
		}
		if err := b.Cancel(e.ctx, h.Name, b.req("x").ID); err != nil {
			e.Errorf("Cancel of an unknown request: %v", err)
		}
		b.refused(once(b.req("x")))
		a.release(h)
	}},
	{"R4", "minimum hold", "the name stays taken for the minimum hold, after a release and after the death of the holder",
		func(e *env) {
			e.useExpiry()
			minimum := 3 * e.h.TTL
			b := e.peer()
			for _, end := range []string{"release", "death"} {
				e.retrySlow(func() (slow bool) {
					a := e.shortPeer()
					r := a.req(end)
					r.MinHold = minimum
					start := time.Now()
					life := proof{e, a, start}
					h := a.get(r)
					if end == "release" {
						if life.prove("Release", func() bool { return a.tryRelease(h) }) {
							return true
						}
						if err := a.Release(e.ctx, h, 0); !errors.Is(err, driver.ErrGone) {
							e.Errorf("second Release of a kept name: %v; want ErrGone", err)
						}
						if ch := a.renew(h); ch.State != driver.Gone {
							e.Errorf("Renew of a kept name = %+v; want Gone", ch)
						}
					} else {
						e.sleepPastTTL()
					}
					reply := b.ask(once(b.req(end)))
					if time.Since(start) >= minimum {
						return true
					}
					if reply.Token != 0 || reply.Holder == nil || !reply.Holder.Kept || reply.Retry <= 0 || reply.Retry > minimum {
						e.Errorf("%s: reply %+v, holder %+v; want a kept holder and when to ask again", end, reply, reply.Holder)
					}
					r = b.req(end)
					token := b.waitGrant(r, b.ask(r), minimum+patience)
					if d := time.Since(start); token == 0 || d < minimum {
						e.Errorf("%s: token %d granted %v after a grant with a minimum hold of %v", end, token, d, minimum)
					}
					return false
				})
			}
		}},
	{"R4", "keep", "Release can keep the name taken, and waiters learn until when", func(e *env) {
		e.useExpiry()
		a, b := e.peer(), e.peer()
		h := a.get(a.req("x"))
		r := b.req("x")
		reply := b.refused(r)
		start := time.Now()
		if err := a.Release(e.ctx, h, e.h.TTL); err != nil {
			e.Fatalf("Release: %v", err)
		}
		token := b.waitGrant(r, reply, e.h.TTL+patience)
		if d := time.Since(start); token <= h.Token || d < e.h.TTL || d > e.h.TTL+e.slack() {
			e.Errorf("token %d granted %v after a release that keeps the name for %v", token, d, e.h.TTL)
		}
	}},
	{"R8", "cancel of a minimum hold", "Cancel ends a grant at once, whatever minimum hold it asked for", func(e *env) {
		a, b := e.peer(), e.peer()
		r := a.req("x")
		r.MinHold = time.Hour
		h := a.get(r)
		if err := a.Cancel(e.ctx, h.Name, h.ID); err != nil {
			e.Fatalf("Cancel: %v", err)
		}
		b.get(once(b.req("x")))
	}},
	{"R8", "close", "Close ends all grants and places at once", func(e *env) {
		a, b := e.peer(), e.peer()
		a.get(a.req("held"))
		h := b.get(b.req("waited for"))
		a.refused(a.req("waited for"))
		if err := a.Close(e.ctx); err != nil {
			e.Fatalf("Close: %v", err)
		}
		if err := a.Close(e.ctx); err != nil {
			e.Errorf("second Close: %v", err)
		}
		b.get(once(b.req("held")))
		if rec := b.inspect("waited for"); rec.Waiting != 0 {
			e.Errorf("%d waiting after Close", rec.Waiting)
		}
		b.release(h)
		b.get(once(b.req("waited for")))
		if _, err := a.Acquire(e.ctx, a.req("x")); !errors.Is(err, driver.ErrClosed) {
			e.Errorf("Acquire after Close: %v; want ErrClosed", err)
		}
	}},
}

package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// tries is how often a check lets a call lose its answer. On a busy machine something else may be under way
// on the client's connection when the first answer is lost; the call then waits behind it, and is never sent.
const tries = 4

var faults = []check{
	{"R5", "answer to acquire lost", "a request that was done but not answered is one grant, which asking again returns",
		func(e *env) {
			a, b := e.peer(), e.peer()
			r := a.req("x")
			heal := a.DropReplies()
			e.answerLost(func(ctx context.Context) error { _, err := a.Acquire(ctx, r); return err })
			heal()
			h := a.retryGet(r)
			if rec := b.inspect("x"); len(rec.Holders) != 1 || rec.Waiting != 0 {
				e.Errorf("Inspect = %+v; want one holder and nobody waiting", rec)
			}
			a.release(h)
			b.get(once(b.req("x")))
		}},
	{"R5", "answer to joining lost", "a request to wait that was not answered is one place in the queue", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.req("x"))
		r := b.req("x")
		heal := b.DropReplies()
		e.answerLost(func(ctx context.Context) error { _, err := b.Acquire(ctx, r); return err })
		heal()
		if ch := a.renew(h); ch.State != 0 {
			e.Fatalf("the holder's Renew = %+v", ch)
		}
		w := &waiter{p: b, r: r, reply: b.retry(r)}
		if rec := a.inspect("x"); rec.Waiting != 1 {
			e.Errorf("%d waiting; want 1", rec.Waiting)
		}
		a.release(h)
		b.release(w.pushed())
		a.get(once(a.req("x")))
	}},
	{"R5", "answer to release lost", "a release that was not answered has released, and a repeat affects nobody",
		func(e *env) {
			a, b := e.peer(), e.peer()
			a.release(a.get(a.req("known"))) // so that both already know the name
			hb := e.released(a, b)
			for try := 1; hb.Token == 0; try++ {
				if try == tries {
					e.Fatalf("not granted after a release whose answer was lost; the record is %+v", b.inspect("x"))
				}
				hb = e.released(a, b)
			}
			if ch := b.renew(hb); ch.State != 0 {
				e.Errorf("the new holder's Renew after the repeated release = %+v", ch)
			}
		}},
	{
		"R5", "answer to downgrade lost",
		"a lease is renewed as before after a downgrade that was not answered, and a repeat affects nobody", func(e *env) {
			a, b, c := e.peer(), e.peer(), e.peer()
			known := a.get(a.req("known")) // so that both already know the name
			if err := a.Downgrade(e.ctx, known); err != nil {
				e.Fatal(err)
			}
			a.release(known)
			h := a.get(a.req("x"))
			heal := a.DropReplies()
			e.answerLost(func(ctx context.Context) error { return a.Downgrade(ctx, h) })
			r := b.shared("x")
			r.Wait = false
			reply := b.ask(r) // a store that needs several exchanges has not done it
			heal()
			e.eventually(func(ctx context.Context) bool {
				changes, err := a.Renew(ctx, []driver.Hold{h})
				if err == nil && len(changes) > 0 && changes[0].State != driver.Unknown {
					e.Fatalf("Renew after a downgrade whose answer was lost = %+v; want that nothing has changed", changes)
				}
				return err == nil && len(changes) == 0
			})
			e.eventually(func(ctx context.Context) bool {
				err := a.Downgrade(ctx, h)
				if driver.IsOver(err) {
					e.Fatalf("Downgrade, repeated: %v", err)
				}
				return err == nil
			})
			c.refused(once(c.req("x")))
			if reply.Token != 0 {
				b.release(driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token})
			}
			c.refused(once(c.req("x")))
			a.release(h)
			c.release(c.get(once(c.req("x"))))
		}},
	{"R5", "answer to cancel lost", "a cancel that was not answered has cancelled", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.req("x"))
		for try := 1; !e.cancelled(a, b); try++ {
			if try == tries {
				e.Fatalf("%d waiting after a cancel whose answer was lost", a.inspect("x").Waiting)
			}
		}
		a.release(h)
		a.get(once(a.req("x")))
	}},
	{"R5", "permits are conserved", "lost answers and retries neither lose nor double a permit", func(e *env) {
		a, b := e.peer(), e.peer()
		for range 3 {
			r := a.permits("x", 2, 4)
			heal := a.DropReplies()
			e.answerLost(func(ctx context.Context) error { _, err := a.Acquire(ctx, r); return err })
			heal()
			h := a.retryGet(r)
			heal = a.DropReplies()
			e.answerLost(func(ctx context.Context) error { return a.Release(ctx, h, 0) })
			heal()
			e.eventually(func(ctx context.Context) bool { return driver.IsOver(a.Release(ctx, h, 0)) })
		}
		var all []driver.Hold
		for range 4 {
			all = append(all, b.get(once(b.permits("x", 1, 4))))
		}
		b.refused(once(b.permits("x", 1, 4)))
		for _, h := range all {
			b.release(h)
		}
	}},
	{"R1", "silent store", "with the network cut, every call ends in an error, and nothing was done", func(e *env) {
		e.silentStore(func(string, error, time.Duration) {})
	}},
	{"R11", "cut and healed", "after an outage a client finds its grants and places unchanged, and gets pushes again",
		func(e *env) {
			a, b := e.peer(), e.peer()
			h := a.get(a.req("x"))
			r := b.req("x")
			b.refused(r)
			heal := b.Cut()
			time.Sleep(quiet)
			heal()
			reply := b.retry(r)
			if reply.Token != 0 || reply.Ahead != 0 {
				e.Fatalf("asked again after an outage: %+v; want the place in the queue", reply)
			}
			a.release(h)
			if token := b.waitGrant(r, reply, patience); token <= h.Token {
				e.Fatalf("token %d after %d", token, h.Token)
			}
		}},
	{"R11", "released during an outage", "a waiter that got the lock while cut off learns of it afterwards", func(e *env) {
		a, b := e.peer(), e.peer()
		h := a.get(a.req("x"))
		r := b.req("x")
		b.refused(r)
		heal := b.Cut()
		a.release(h)
		time.Sleep(quiet)
		heal()
		reply := b.retry(r)
		if token := b.waitGrant(r, reply, patience); token <= h.Token {
			e.Fatalf("token %d after %d", token, h.Token)
		}
	}},
	{"R3", "restart", "after a restart of the store tokens go on growing, and sessions continue", func(e *env) {
		a := e.peer()
		h := a.get(a.req("x"))
		a.release(h)
		held := a.get(a.req("held"))
		e.h.Restart(e.TB)
		b := e.peer()
		r := b.req("x")
		if token := b.retry(r).Token; token <= h.Token {
			e.Fatalf("token %d after a restart, %d before", token, h.Token)
		}
		ra := a.req("y")
		if token := a.retry(ra).Token; token == 0 {
			e.Error("a session from before the restart gets no grants")
		}
		if reply := b.retry(b.req("held")); reply.Token != 0 && reply.Token <= held.Token {
			e.Errorf("token %d after a restart, %d before", reply.Token, held.Token)
		}
		rw := b.req("y")
		reply := b.refused(rw)
		if err := a.Release(e.ctx, driver.Hold{Name: ra.Name, ID: ra.ID, Token: a.get(ra).Token}, 0); err != nil {
			e.Fatalf("Release after a restart: %v", err)
		}
		if b.waitGrant(rw, reply, patience) == 0 {
			e.Error("no wake-up after a restart")
		}
	}},
}

// silentStore makes each call of a session and a backend while their network is cut, with a context
// of callPatience. It passes the result and duration of each to returned.
func (e *env) silentStore(returned func(call string, err error, took time.Duration)) {
	e.Helper()
	a, b := e.peer(), e.peer()
	h := a.get(a.req("held"))
	heal := a.Cut()
	defer heal()
	for name, call := range map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := a.Acquire(ctx, a.req("x")); return err },
		"Cancel":  func(ctx context.Context) error { return a.Cancel(ctx, h.Name, "nobody-1") },
		"Release": func(ctx context.Context) error { return a.Release(ctx, h, 0) },
		"Renew":   func(ctx context.Context) error { return renewAll(ctx, a, h) },
		"Inspect": func(ctx context.Context) error { _, err := a.Inspect(ctx, h.Name); return err },
		"List":    func(ctx context.Context) error { _, err := a.List(ctx, e.prefix, "", 10); return err },
		"Await":   func(ctx context.Context) error { _, err := a.Await(ctx, e.name("l"), "id-1"); return err },
	} {
		ctx, cancel := context.WithTimeout(e.ctx, callPatience)
		start := time.Now()
		err := call(ctx)
		cancel()
		if err == nil {
			e.Errorf("%s succeeded through a cut network", name)
		}
		returned(name, err, time.Since(start))
	}
	if rec := b.inspect("x"); rec.Kind != driver.Unused {
		e.Errorf("a request that was sent into a cut network was done: %+v", rec)
	}
}

// released lets a hold x and lose the answer to its release. It returns b's grant after that, with the token
// 0 if b does not get it in time. Then the release is repeated until it says that it has been done.
func (e *env) released(a, b *peer) (hb driver.Hold) {
	e.Helper()
	h := a.get(a.req("x"))
	heal := a.DropReplies()
	e.answerLost(func(ctx context.Context) error { return a.Release(ctx, h, 0) })
	for end := time.Now().Add(e.ttl / 12); hb.Token == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r := once(b.req("x"))
		hb = driver.Hold{Name: r.Name, ID: r.ID, Token: b.ask(r).Token} // the release may still be under way
	}
	heal()
	e.eventually(func(ctx context.Context) bool { return driver.IsOver(a.Release(ctx, h, 0)) })
	return hb
}

// cancelled lets b wait for x and lose the answer to its cancel. It reports whether a sees in time
// that b has cancelled.
func (e *env) cancelled(a, b *peer) bool {
	e.Helper()
	r := b.req("x")
	b.refused(r)
	if err := b.Cancel(e.ctx, e.name("known"), r.ID+"-k"); err != nil { // so that both already know the name
		e.Fatal(err)
	}
	heal := b.DropReplies()
	e.answerLost(func(ctx context.Context) error { return b.Cancel(ctx, r.Name, r.ID) })
	in := true
	for end := time.Now().Add(e.ttl / 12); in && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		in = a.inspect("x").Waiting > 0 // the cancel may still be under way
	}
	heal()
	if in {
		e.eventually(func(ctx context.Context) bool { return b.Cancel(ctx, r.Name, r.ID) == nil })
	}
	return !in
}

// answerLost runs a call whose answer is lost: it must end with its context, in an error.
func (e *env) answerLost(call func(context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 500*time.Millisecond)
	defer cancel()
	if err := call(ctx); err == nil {
		e.Fatal("a call whose answer was lost succeeded")
	} else if !retryable(err) {
		e.Fatalf("a call whose answer was lost returned a final error: %v", err)
	}
}

// eventually repeats a call until it succeeds: connections need a moment to recover.
func (e *env) eventually(ok func(context.Context) bool) {
	e.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(e.ctx, 3*time.Second)
		done := ok(ctx)
		cancel()
		if done {
			return
		}
		if time.Now().After(end) {
			e.Fatal("the store does not come back")
		}
	}
}

// retry is ask for connections that may need a moment to recover.
func (p *peer) retry(r *driver.Request) (reply driver.Reply) {
	p.e.Helper()
	p.e.eventually(func(ctx context.Context) bool {
		var err error
		if reply, err = p.Acquire(ctx, r); errors.Is(err, driver.ErrSpent) {
			r.ID = p.req(r.Name).ID
		}
		return err == nil
	})
	return reply
}

// retryGet is get for connections that may need a moment to recover.
func (p *peer) retryGet(r *driver.Request) driver.Hold {
	p.e.Helper()
	reply := p.retry(r)
	if reply.Token == 0 {
		p.e.Fatalf("asked again: not granted; in the way: %+v", reply.Holder)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

func renewAll(ctx context.Context, p *peer, holds ...driver.Hold) error {
	changes, err := p.Renew(ctx, holds)
	for _, ch := range changes {
		if ch.State == driver.Unknown {
			return driver.ErrUncertain
		}
	}
	return err
}

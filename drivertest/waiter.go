package drivertest

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// waiter is a place in line and what its session was answered last.
type waiter struct {
	p     *party
	r     *driver.Request
	reply driver.Reply
	asked bool // the reply's Wake is no longer good
}

// joins makes r wait.
func (p *party) joins(r *driver.Request) *waiter {
	p.e.Helper()
	return &waiter{p: p, r: r, reply: p.refused(r)}
}

// granted brings w to its grant, which must be on record.
func (w *waiter) granted() driver.Hold {
	e := w.p.e
	e.Helper()
	if w.asked {
		w.reply = w.p.retry(w.r)
	}
	token := w.p.waits(w.r, w.reply, patience)
	if token == 0 {
		e.Fatalf("the waiter of %q was not served", w.r.Name)
	}
	return driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: token}
}

// hears takes what has been pushed to w by now. A token must be on record.
func (w *waiter) hears() (token uint64) {
	w.p.e.Helper()
	select {
	case token = <-w.reply.Wake:
	default:
		return 0
	}
	if token == 0 { // to be asked again: when the store takes it
		w.asked = true
		return 0
	}
	w.p.e.recorded(w.r, token)
	return token
}

// silent listens for a moment: none of these waiters may be told of a grant.
func (e *env) silent(waiters ...*waiter) {
	e.Helper()
	for end := time.Now().Add(quiet); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, w := range waiters {
			if token := w.hears(); token != 0 {
				e.Fatalf("the waiter of %q heard token %d", w.r.Name, token)
			}
		}
	}
}

// recorded checks R13 and R14 for a token that r's waiter has just heard: the store must have it on record as granted to r.
// A store that extends a grant under a larger token may show that one. Where leases run out, one may be over before
// this looks, and the lock with another.
func (e *env) recorded(r *driver.Request, token uint64) {
	e.Helper()
	rec, err := e.sees().Inspect(e.ctx, r.Name)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	if e.lapses && rec.Token >= token {
		return
	}
	if !slices.ContainsFunc(rec.Holders, func(h driver.Holder) bool { return h.ID == r.ID && h.Token >= token && !h.Kept }) {
		e.Fatalf("R13: the waiter of %q heard token %d, which is not on record as granted to it: %+v", r.Name, token, rec)
	}
}

// woken waits up to d for a token on the reply's Wake, asking again when told to, as
// package holdfast would (reply is then the newer answer); it does not renew. 0: nothing came.
func (p *party) woken(r *driver.Request, reply *driver.Reply, d time.Duration) uint64 {
	p.e.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	for reply.Token == 0 {
		select {
		case token := <-reply.Wake:
			if token != 0 {
				p.e.recorded(r, token)
				return token
			}
			*reply = p.ask(r)
		case <-end.C:
			return 0
		}
	}
	return reply.Token
}

// waits brings r to its grant as package holdfast would, renewing the place, for up to d.
func (p *party) waits(r *driver.Request, reply driver.Reply, d time.Duration) uint64 {
	p.e.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	beat := time.NewTicker(p.e.beat)
	defer beat.Stop()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for reply.Token == 0 {
		if reply.Retry > 0 {
			retry.Reset(reply.Retry + time.Millisecond)
		}
		select {
		case token := <-reply.Wake:
			if token != 0 {
				p.e.recorded(r, token)
				return token
			}
			reply = p.ask(r)
		case <-beat.C:
			switch ch := p.renew(place(r)); ch.State {
			case driver.Granted:
				p.e.recorded(r, ch.Token)
				return ch.Token
			case driver.Gone:
				reply = p.ask(r)
			case driver.Waiting:
				reply.Retry = ch.Retry
			}
		case <-retry.C:
			reply = p.ask(r)
		case <-end.C:
			return 0
		}
	}
	return reply.Token
}

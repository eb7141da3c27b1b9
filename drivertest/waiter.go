package drivertest

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// waiter is a place in the queue and the last answer to its session.
type waiter struct {
	p        *peer
	r        *driver.Request
	reply    driver.Reply
	askAgain bool // the Wake of reply is no longer valid
}

// joinQueue makes r wait.
func (p *peer) joinQueue(r *driver.Request) *waiter {
	p.e.Helper()
	w := &waiter{p: p, r: r, reply: p.refused(r)}
	if placed := p.e.h.Placed; placed != nil {
		placed(p.e.TB, r.Name, r.ID, func() { _, _ = p.Renew(p.e.ctx, []driver.Hold{place(r)}) })
	}
	return w
}

// granted waits for w's grant, which must be on record.
func (w *waiter) granted() driver.Hold {
	e := w.p.e
	e.Helper()
	if w.askAgain {
		w.reply = w.p.retry(w.r)
	}
	token := w.p.waitGrant(w.r, w.reply, patience)
	if token == 0 {
		e.Fatalf("the waiter of %q was not served", w.r.Name)
	}
	return driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: token}
}

// pushed waits for a push of w's grant: nothing else tells the store to look at the queue.
func (w *waiter) pushed() driver.Hold {
	w.p.e.Helper()
	if w.askAgain {
		w.reply = w.p.retry(w.r)
	}
	token := w.p.waitPush(w.r, &w.reply, patience)
	if token == 0 {
		w.p.e.Fatalf("the waiter of %q was not served", w.r.Name)
	}
	return driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: token}
}

// readPush returns what has been pushed to w by now. A token must be on record.
func (w *waiter) readPush() (token uint64) {
	w.p.e.Helper()
	select {
	case token = <-w.reply.Wake:
	default:
		return 0
	}
	if token == 0 { // ask again when the store accepts that
		w.askAgain = true
		return 0
	}
	w.p.e.onRecord(w.r, token)
	return token
}

// noPush waits a moment: none of these waiters may get a token.
func (e *env) noPush(waiters ...*waiter) {
	e.Helper()
	for end := time.Now().Add(quiet); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, w := range waiters {
			if token := w.readPush(); token != 0 {
				e.Fatalf("the waiter of %q was pushed token %d", w.r.Name, token)
			}
		}
	}
}

// onRecord checks R13 and R14 for a token that was pushed to r's waiter: the store must have it on
// record as granted to r. A store that extends a grant under a larger token may show that one.
// Where leases expire, the grant may have ended before this reads, and another may hold the lock.
func (e *env) onRecord(r *driver.Request, token uint64) {
	e.Helper()
	rec, err := e.healthy().Inspect(e.ctx, r.Name)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	if e.expires && rec.Token >= token {
		return
	}
	if !slices.ContainsFunc(rec.Holders, func(h driver.Holder) bool {
		return h.ID == r.ID && h.Token >= token && !h.Kept
	}) {
		e.Fatalf("R13: the waiter of %q was pushed token %d, which is not on record as its grant: %+v", r.Name, token, rec)
	}
}

// waitPush waits up to d for a token on the reply's Wake, and asks again when pushed 0, as package
// holdfast would (reply is then the newer answer). If that answer says when to ask again, it does. It
// does not renew. 0: no token came.
func (p *peer) waitPush(r *driver.Request, reply *driver.Reply, d time.Duration) uint64 {
	p.e.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	var retry <-chan time.Time // never for the first answer: the push must come by itself
	for reply.Token == 0 {
		select {
		case token := <-reply.Wake:
			if token != 0 {
				p.e.onRecord(r, token)
				return token
			}
		case <-retry:
		case <-end.C:
			return 0
		}
		*reply, retry = p.ask(r), nil
		if reply.Retry > 0 {
			retry = time.After(reply.Retry + time.Millisecond)
		}
	}
	return reply.Token
}

// waitGrant waits up to d for r's grant as package holdfast would, and renews the place.
func (p *peer) waitGrant(r *driver.Request, reply driver.Reply, d time.Duration) uint64 {
	p.e.Helper()
	end := time.NewTimer(d)
	defer end.Stop()
	beat := time.NewTicker(p.e.renewEvery)
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
				p.e.onRecord(r, token)
				return token
			}
			reply = p.ask(r)
		case <-beat.C:
			switch ch := p.renew(place(r)); ch.State {
			case driver.Granted:
				p.e.onRecord(r, ch.Token)
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

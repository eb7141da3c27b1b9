package holdfast

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// The keeper is the one goroutine that renews all leases and places in line of a client,
// and that ends leases whose time is over. The two do not depend on each other: an
// exchange that hangs does not delay the end of a lease.
//
// A lease is trusted from when an exchange was SENT whose answer proved it, for
// TTL - margin. The store counts the TTL from when it processed the exchange, which is
// later; so the lease ends here before it can end there, as long as the two clocks run at
// the same speed within margin/TTL. Nothing compares the readings of two clocks.
//
//	sent        processed                trusted ends      store may give it away
//	 |--------------|-----------------------------|------------------|----> time
//	 |<------------ TTL - margin ---------------->|                  |
//	                |<-------------------- TTL --------------------->|

// keep runs until the client is closed.
func (c *Client) keep() {
	interval := c.TTL() / 3
	next := c.now() + interval // when to renew
	renewed := make(chan error, 1)
	running := false
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		now := c.now()
		for l := c.overdue(now); l != nil; l = c.overdue(now) {
			c.lose(l, l.lapse(now))
		}
		if now >= next && !running {
			running, next = true, now+interval
			go func() { renewed <- c.renew() }()
		}
		timer.Reset(c.sleepUntil(next, interval, running) - now)
		select {
		case <-timer.C:
		case <-c.kick:
		case err := <-renewed:
			running = false
			if err != nil { // try again long before the leases run out
				next = min(next, c.now()+min(max(c.TTL()/20, 20*time.Millisecond), time.Second))
			}
		case <-c.session.Load().Lost():
			if running { // it fails soon: its session is over
				<-renewed
				running = false
			}
			c.replaceSession()
			interval = c.TTL() / 3
			next = c.now() + interval
		case <-c.closing:
			if running {
				<-renewed
			}
			return
		}
	}
}

// sleepUntil decides when the keeper looks next, and lets newer leases know.
func (c *Client) sleepUntil(next, interval time.Duration, running bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := next
	if running {
		at = forever
	}
	if c.looking = len(c.leases) > 0; c.looking {
		// Timers stop while the machine sleeps. Looking once a second bounds how long
		// a lease that lapsed meanwhile goes unnoticed after it woke.
		at = min(at, c.leases[0].until, c.now()+min(interval, time.Second))
	}
	c.wakeAt = at
	return at
}

// watch puts l under the keeper's eye. Called with c.mu held.
func (c *Client) watch(l *Lease) {
	heap.Push(&c.leases, l)
	if l.until < c.wakeAt || !c.looking {
		c.looking = true // one kick is enough
		select {
		case c.kick <- struct{}{}:
		default:
		}
	}
}

// overdue returns a lease whose time is over, or nil.
func (c *Client) overdue(now time.Duration) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.leases) > 0 && c.leases[0].until <= now {
		return c.leases[0]
	}
	return nil
}

// end ends l for cause, with all that was borrowed from it. If it had ended before, end
// does nothing and returns why.
func (c *Client) end(l *Lease, cause *Error) (prior *Error) {
	c.mu.Lock()
	if l.ended != nil {
		defer c.mu.Unlock()
		return l.ended
	}
	l.ended = cause
	if l.index >= 0 {
		heap.Remove(&c.leases, l.index)
	}
	if l.outer != nil {
		delete(l.outer.inner, l)
	}
	cancels, inner := l.cancels, l.inner
	l.cancels, l.inner = nil, nil
	c.mu.Unlock()

	for b := range inner {
		c.end(b, cause)
	}
	for cancel, forget := range cancels {
		forget()
		(*cancel)(cause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.done != nil {
		close(l.done)
	} else {
		l.done = closed
	}
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// lose ends a lease that its holder has not released.
func (c *Client) lose(l *Lease, why *Error) {
	if c.end(l, why) != nil {
		return
	}
	c.log.Warn("holdfast: lease lost", "lock", l.req.Name, "token", l.token, "reason", string(why.Reason))
	c.observer.lost(l.req.Name, l.token, why.Reason)
}

// renew proves to the store that everything held or waited for is alive, in one exchange.
func (c *Client) renew() error {
	s := c.session.Load()
	c.mu.Lock()
	holds := make([]driver.Hold, 0, len(c.leases)+len(c.waits))
	leases := make([]*Lease, 0, len(c.leases))
	waits := make([]*wait, 0, len(c.waits))
	for _, l := range c.leases {
		if l.outer == nil && l.session == s {
			leases, holds = append(leases, l), append(holds, l.hold())
		}
	}
	for w := range c.waits {
		if w.l.session == s {
			waits = append(waits, w)
			holds = append(holds, driver.Hold{Name: w.l.req.Name, ID: w.l.req.ID})
		}
	}
	var offers []*Lease
	for l := range c.offers {
		if l.session == s {
			offers = append(offers, l)
			holds = append(holds, l.hold())
		}
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(c.life, c.limit())
	sent := c.soonest()
	changes, err := s.Renew(ctx, holds)
	cancel()
	if len(holds) > 0 {
		c.observer.renewed(len(holds), c.soonest()-sent, err)
	}
	if err != nil {
		c.log.Warn("holdfast: renewal failed; trying again", "leases", len(leases), "waits", len(waits), "err", err)
		return err
	}
	return c.apply(sent, leases, waits, offers, changes)
}

// apply draws the conclusions from what the store answered to a renewal sent at sent.
func (c *Client) apply(sent time.Duration, leases []*Lease, waits []*wait, offers []*Lease, changes []driver.Change) error {
	states := make(map[int]driver.Change, len(changes))
	for _, ch := range changes {
		states[ch.Index] = ch
	}
	var gone []*Lease
	unknown := 0
	c.mu.Lock()
	for i, l := range leases {
		switch ch := states[i]; {
		case ch.State == driver.Gone:
			gone = append(gone, l)
		case ch.State == driver.Unknown:
			unknown++
		case l.ended == nil:
			l.extend(sent + l.session.trust())
		}
	}
	heap.Init(&c.leases)
	for i, w := range waits {
		ch := states[len(leases)+i]
		if ch.State == driver.Unknown {
			unknown++
			continue
		}
		if ch.State != driver.Gone {
			w.proof = max(w.proof, sent)
		}
		if ch.State != 0 {
			select { // only the latest counts, and only this goroutine sends
			case <-w.news:
			default:
			}
			w.news <- news{ch, sent}
		}
	}
	c.mu.Unlock()
	for i, l := range offers {
		switch states[len(leases)+len(waits)+i].State {
		case driver.Gone:
			c.adoptedNow(l)
		case driver.Unknown:
			unknown++
		}
	}
	for _, l := range gone {
		c.lose(l, lost("use", &l.req, ReasonRevoked))
	}
	if unknown > 0 {
		c.log.Warn("holdfast: renewal failed in part; trying again", "unproven", unknown)
		return errPartial
	}
	return nil
}

var errPartial = errors.New("not everything could be renewed")

// extend moves the end of trust on, never back. Called with c.mu held; the heap is put in
// order afterwards.
func (l *Lease) extend(trusted time.Duration) {
	l.trusted = max(l.trusted, trusted)
	l.until = min(l.trusted, l.latest)
}

// replaceSession ends what hung on a session that the store has ended, and opens another.
func (c *Client) replaceSession() {
	dead := c.session.Load()
	c.mu.Lock()
	leases, offers := slices.Clone(c.leases), slices.Collect(maps.Keys(c.offers))
	c.mu.Unlock()
	for _, l := range leases {
		c.lose(l, lost("use", &l.req, ReasonSession))
	}
	for _, l := range offers {
		c.adoptedNow(l) // it is over in another way
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.open(c.life)
		if err == nil {
			break
		}
		c.log.Warn("holdfast: the session is over and cannot be opened again yet", "err", err)
		if c.pause(c.life, nil, pause) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(c.life, c.limit())
	defer cancel()
	if err := dead.Close(ctx); err != nil {
		c.log.Warn("holdfast: close of a session that is over", "err", err)
	}
}

// leaseHeap orders leases by when they end.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	n := len(old) - 1
	l := old[n]
	old[n], *h = nil, old[:n]
	l.index = -1
	return l
}

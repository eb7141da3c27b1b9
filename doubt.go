package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// doubts are the names whose grants may have ended, as a session has heard: see
// driver.SessionConfig. The keeper renews the grants of these names at once. What the store answers
// decides; what was heard decides nothing, since anybody may have sent it.
//
// However often something is heard, one such exchange is under way at a time, for all names
// together, and the next is not before checkPause is over. Names that are heard meanwhile are
// checked then. A lease that was released has left Client.leases before its release is sent, so its
// own message causes no exchange.
type doubts struct {
	mu    sync.Mutex
	names map[string]struct{}
	wake  chan struct{} // buffer of 1
}

// checkPause is the pause after a check.
const checkPause = 50 * time.Millisecond

// add notes a name. It does not block.
func (d *doubts) add(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names = map[string]struct{}{}
	}
	d.names[name] = struct{}{}
	notify(d.wake)
}

// take returns the names, and forgets them.
func (d *doubts) take() map[string]struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.names
	d.names = nil
	return names
}

// check renews the grants of these names in one exchange. If that fails, the next renewal of all
// grants tells what has become of them.
func (c *Client) check(ctx context.Context, s *session, names map[string]struct{}) {
	c.mu.Lock()
	r := c.renewalOf(s, func(name string) bool { _, ok := names[name]; return ok })
	c.mu.Unlock()
	if len(r.holds) == 0 {
		return
	}
	bctx, cancel := context.WithTimeout(ctx, c.limit())
	changes, err := s.Renew(bctx, r.holds)
	cancel()
	if err == nil && ctx.Err() == nil {
		_ = c.apply(s, r, changes, nil)
	}
	_ = c.pause(ctx, checkPause)
}

// renewal is an exchange that renews leases, waits and offers, in this order.
type renewal struct {
	sent   time.Duration // when it was sent
	holds  []driver.Hold
	leases []*Lease
	waits  []*wait
	offers []*Lease
	check  bool // it is of some names only
}

// renewalOf returns the renewal of everything of the session, or if some is not nil of the leases
// and offers with such a name. Called with c.mu held.
func (c *Client) renewalOf(s *session, some func(name string) bool) *renewal {
	r := &renewal{sent: c.coarseNow(), check: some != nil}
	if some == nil {
		r.leases, r.waits = make([]*Lease, 0, len(c.leases)), make([]*wait, 0, len(c.waits))
		r.holds = make([]driver.Hold, 0, len(c.leases)+len(c.waits))
	}
	for _, l := range c.leases {
		if l.outer == nil && l.session == s && (some == nil || some(l.req.Name)) {
			r.leases, r.holds = append(r.leases, l), append(r.holds, l.renewal(r.sent))
		}
	}
	for w := range c.waits {
		if w.l.session == s && some == nil {
			r.waits = append(r.waits, w)
			r.holds = append(r.holds, driver.Hold{Name: w.l.req.Name, ID: w.l.req.ID})
		}
	}
	for l := range c.offers {
		if l.session == s && (some == nil || some(l.req.Name)) {
			r.offers = append(r.offers, l)
			r.holds = append(r.holds, l.holdID())
		}
	}
	return r
}

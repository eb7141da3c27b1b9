package holdfast

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A hand-off gives a lease to another process without a moment in which nobody holds the
// lock, and without one in which both may rely on it: the giver's lease ends here first,
// while its client keeps the grant alive at the store; whoever has the ticket then adopts
// the grant there, in one step, under an id of its own, so that nothing that the giver
// still does can end it.

// offer is a grant whose lease has been handed off and that nobody has adopted yet.
type offer struct {
	l       *Lease
	adopted chan struct{}
}

// ticketPrefix says what a ticket is, and in which form.
const ticketPrefix = "holdfast1."

// ticket names a grant to whoever is to adopt it.
type ticket struct {
	Store string      `json:"store"`
	Name  string      `json:"name"`
	ID    string      `json:"id"`
	Token uint64      `json:"token,string"`
	Mode  driver.Mode `json:"mode"`
	N     int         `json:"n"`
	Limit int         `json:"limit,omitempty"`
}

func (t *ticket) String() string {
	b, err := json.Marshal(t)
	if err != nil { // cannot happen: strings and numbers
		return ""
	}
	return ticketPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// parseTicket is the reverse of String.
func parseTicket(s string) (*ticket, error) {
	bad := func(what string) (*ticket, error) {
		return nil, fmt.Errorf("%w ticket: %s; wanted is what HandOff returned", ErrInvalid, what)
	}
	rest, ok := strings.CutPrefix(s, ticketPrefix)
	if !ok {
		return bad("it does not begin with " + ticketPrefix)
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return bad("it is damaged")
	}
	var t ticket
	if err := json.Unmarshal(b, &t); err != nil {
		return bad("it is damaged")
	}
	r := driver.Request{ID: t.ID, Name: t.Name, Mode: t.Mode, N: t.N, Limit: t.Limit}
	if err := r.Check(); err != nil || t.Token == 0 {
		return bad("it names no grant")
	}
	return &t, nil
}

// HandOff ends the lease in this process, as Release does for those who look at it (its
// contexts end, Err is ErrReleased), but keeps the lock: the client goes on renewing the
// grant until another client has adopted it with the ticket. Whoever has the ticket can
// take the lock, so treat it as a secret. It asks the store nothing.
//
// adopted is closed when another client has it, or the grant is over in another way; that
// is noticed within a third of the TTL. Until then keep the client open: Close gives the
// lock back. Release takes an offer back that nobody has adopted; it returns ErrReleased
// if somebody has. A borrowed lease cannot be handed off (ErrInvalid).
func (l *Lease) HandOff() (ticketText string, adopted <-chan struct{}, err error) {
	const op = "hand off"
	c := l.c
	if err := l.Err(); err != nil {
		e := *err.(*Error)
		e.Op = op
		return "", nil, &e
	}
	if l.outer != nil {
		return "", nil, &Error{Op: op, Name: l.req.Name, Err: fmt.Errorf("%w: the lease is borrowed; hand off the one that it was borrowed from", ErrInvalid)}
	}
	o := &offer{l: l, adopted: make(chan struct{})}
	t := &ticket{c.backend.Name(), l.req.Name, l.req.ID, l.token, l.mode(), l.req.N, l.req.Limit}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return "", nil, &Error{Op: op, Name: l.req.Name, Err: ErrClosed}
	}
	c.offers[l] = o // before the lease ends, so that no renewal leaves it out
	c.mu.Unlock()
	if prior := c.end(l, &Error{Op: "use", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}); prior != nil {
		c.mu.Lock()
		delete(c.offers, l)
		c.mu.Unlock()
		return "", nil, &Error{Op: op, Name: l.req.Name, Reason: prior.Reason, Err: prior.Err}
	}
	return t.String(), o.adopted, nil
}

// takeBack is Release of a lease that was handed off.
func (l *Lease) takeBack(ctx context.Context) error {
	c := l.c
	c.mu.Lock()
	o := c.offers[l]
	delete(c.offers, l)
	c.mu.Unlock()
	if o == nil {
		return &Error{Op: "release", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	}
	close(o.adopted)
	ctx, cancel := c.bound(ctx)
	defer cancel()
	switch err := l.session.Release(ctx, l.hold(), 0); {
	case err == nil:
		return nil
	case over(err):
		return &Error{Op: "release", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	default:
		c.background(func() { c.giveBack(l) })
		return &Error{Op: "release", Name: l.req.Name, Err: outage(err)}
	}
}

// adoptedNow is told by a renewal that the store does not know the offered grant any more.
func (c *Client) adoptedNow(l *Lease) {
	c.mu.Lock()
	o := c.offers[l]
	delete(c.offers, l)
	c.mu.Unlock()
	if o != nil {
		close(o.adopted)
	}
}

// Adopt takes over the lock that a HandOff has offered, with the same token: nobody else
// can have had it in between. Of the options MaxHold has its meaning; note and labels
// replace the giver's. The ticket is good for one adoption.
//
// A store that does not answer is tried for up to a TTL. Errors: ErrGone if the grant is
// over, or somebody has adopted it before; ErrInvalid if this is no ticket, or one of another
// kind of store; ErrUnavailable, ErrUncertain, ErrRefused, ErrClosed, ctx's.
func (c *Client) Adopt(ctx context.Context, ticketText string, opts ...Option) (*Lease, error) {
	const op = "adopt"
	t, err := parseTicket(ticketText)
	if err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	fail := func(err error) (*Lease, error) { return nil, &Error{Op: op, Name: t.Name, Err: err} }
	if name := c.backend.Name(); t.Store != name {
		return fail(fmt.Errorf("%w ticket: it is for a store of the kind %q, not %q", ErrInvalid, t.Store, name))
	}
	r, o := c.request(t.Name, t.Mode, t.N, t.Limit, opts)
	if o.err != nil {
		return fail(o.err)
	}
	if !c.begin() {
		return fail(ErrClosed)
	}
	defer c.ends.Done()
	l := &Lease{c: c, req: r, index: -1}
	l.enter(c.session.Load())
	given := driver.Hold{Name: t.Name, ID: t.ID, Token: t.Token}
	asked := false // the store may have given it to us
	stop := func(err error) (*Lease, error) {
		if asked {
			c.background(func() {
				c.insist(func(ctx context.Context) error {
					return l.session.Release(ctx, driver.Hold{Name: t.Name, ID: l.req.ID, Token: t.Token}, 0)
				})
			})
		}
		return fail(err)
	}
	end := c.soonest() + c.TTL()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		sent := c.soonest()
		bctx, cancel := c.bound(ctx)
		err := l.session.Adopt(bctx, given, l.req.ID, l.req.Info)
		cancel()
		switch {
		case err == nil && c.admit(l, &o, t.Token, sent):
			c.observer.acquired(t.Name, t.Token, 0)
			return l, nil
		case err == nil: // it took so long that it has to be confirmed
			asked = true
		case over(err):
			return fail(fmt.Errorf("%w: the grant has ended, or somebody has adopted it before: %w", ErrGone, err))
		case decided(err):
			return fail(err)
		default:
			asked = asked || !final(err) && !errors.Is(err, ErrUnavailable)
		}
		switch {
		case ctx.Err() != nil:
			return stop(cause(ctx))
		case c.soonest() > end && err == nil:
			return stop(fmt.Errorf("%w: the store takes more than a third of the TTL of %v to answer", ErrUnavailable, c.TTL()))
		case c.soonest() > end:
			return stop(outage(err))
		}
		if err := c.pause(ctx, nil, pause); err != nil {
			return stop(err)
		}
		if s := c.session.Load(); s != l.session { // with which ended what it had adopted
			l.enter(s)
			asked = false
		}
	}
}

package holdfast

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
const ticketPrefix = "holdfast2."

// ticket names a grant to whoever is to adopt it. What the grant is for the store says. The
// store knows the request by an ID, which is a hash of the secret: it shows no ticket.
type ticket struct {
	Store  string `json:"store"`
	Name   string `json:"name"`
	Secret []byte `json:"secret"`
	Token  uint64 `json:"token,string"`
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
	if driver.CheckName(t.Name) != nil || len(t.Secret) != len(requestSecret{}) || t.Token == 0 {
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
	if err := l.made(op); err != nil {
		return "", nil, err
	}
	c := l.c
	fail := func(reason Reason, err error) (string, <-chan struct{}, error) {
		return "", nil, &Error{Op: op, Name: l.req.Name, Reason: reason, Err: err}
	}
	if err := l.Err(); err != nil { // of a lapse that nobody has noticed yet, too
		e := err.(*Error)
		return fail(e.Reason, e.Err)
	}
	if l.outer != nil {
		return fail("", fmt.Errorf("%w: the lease is borrowed; hand off the one that it was borrowed from", ErrInvalid))
	}
	o := &offer{l: l, adopted: make(chan struct{})}
	why := &Error{Op: "use", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	// One step: the lease ends for Downgrade and for whoever borrows, and is an offer for
	// renewals and for the end of the session.
	c.mu.Lock()
	switch {
	case l.ended != nil:
		defer c.mu.Unlock()
		return fail(l.ended.Reason, l.ended.Err)
	case c.closed:
		c.mu.Unlock()
		return fail("", ErrClosed)
	case l.session.over():
		c.mu.Unlock()
		why := lost("use", &l.req, ReasonSession)
		c.lose(l, why)
		return fail(why.Reason, why.Err)
	}
	c.offers[l] = o
	rest := c.finish(l, why, nil)
	c.mu.Unlock()
	cancelAll(rest, why)
	secret := c.requests.secret(l.number)
	t := &ticket{c.backend.Name(), l.req.Name, secret[:], l.token}
	return t.String(), o.adopted, nil
}

// takeBack is Release of a lease that was handed off.
func (l *Lease) takeBack(ctx context.Context) error {
	c := l.c
	c.mu.Lock()
	stood := c.offerOver(l)
	c.mu.Unlock()
	if !stood {
		return &Error{Op: "release", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	}
	bctx, cancel := c.bound(ctx)
	defer cancel()
	err := c.change(bctx, func() error { return l.session.Release(bctx, l.hold(), 0) })
	switch {
	case err == nil:
		return nil
	case driver.IsOver(err):
		return &Error{Op: "release", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	default:
		l.insistRelease()
		return &Error{Op: "release", Name: l.req.Name, Err: outage(explain(ctx, err))}
	}
}

// offerOver ends the offer of l, if it still stands: the store does not know the grant any
// more, or it is taken back. Called with c.mu held.
func (c *Client) offerOver(l *Lease) bool {
	o := c.offers[l]
	delete(c.offers, l)
	if o != nil {
		close(o.adopted)
	}
	return o != nil
}

// Adopt takes over the lock that a HandOff has offered, with the same token: nobody else
// can have had it in between. The store says what is held: for writing or reading, or how
// many permits. Of the options MaxHold has its meaning; note and labels replace the
// giver's. The ticket is good for one adoption.
//
// A store that does not answer is tried for up to a TTL. Errors: ErrGone if the grant is
// over, or somebody has adopted it before; ErrInvalid if this is no ticket, or one of another
// kind of store; ErrUnavailable, ErrUncertain, ErrRefused, ErrClosed, ctx's.
func (c *Client) Adopt(ctx context.Context, ticketText string, opts ...Option) (*Lease, error) {
	const op = "adopt"
	if err := c.made(); err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	t, err := parseTicket(ticketText)
	if err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	fail := func(err error) (*Lease, error) { return nil, &Error{Op: op, Name: t.Name, Err: err} }
	if name := c.backend.Name(); t.Store != name {
		return fail(fmt.Errorf("%w ticket: it is for a store of the kind %q, not %q", ErrInvalid, t.Store, name))
	}
	r, o := c.request(t.Name, driver.Exclusive, 1, 0, opts)
	if o.err != nil {
		return fail(o.err)
	}
	if !c.work.enter() {
		return fail(ErrClosed)
	}
	defer c.work.leave()
	given := driver.Hold{Name: t.Name, ID: requestSecret(t.Secret).id(), Token: t.Token}
	a := &adoption{l: &Lease{c: c, req: r, index: -1}, o: &o, ctx: ctx, given: given}
	a.l.enter(c.session.Load())
	if err := a.run(); err != nil {
		return fail(err)
	}
	a.l.announce(0)
	return a.l, nil
}

// adoption brings an Adopt to its end.
type adoption struct {
	l     *Lease
	o     *options
	ctx   context.Context
	given driver.Hold
	asked bool // the store may have given it to us
	blank int  // how often the store has agreed and then shown no such grant
}

// run returns nil when the grant has become a lease.
func (a *adoption) run() error {
	c, l := a.l.c, a.l
	end := c.soonest() + c.TTL()
	pause := backoff{most: time.Second}
	for {
		sent := c.soonest()
		err := explain(a.ctx, a.once())
		switch {
		case err == nil && c.admit(l, a.o, a.given.Token, sent):
			return nil
		case err == nil: // it took so long that it has to be confirmed
		case driver.IsOver(err):
			return a.stop(fmt.Errorf("%w: the grant has ended, or somebody has adopted it before: %w", ErrGone, err))
		case decided(err):
			return a.stop(err)
		}
		switch {
		case a.ctx.Err() != nil:
			return a.stop(cause(a.ctx))
		case c.soonest() > end && err == nil && !l.session.over():
			return a.stop(c.tooSlow())
		case c.soonest() > end && err == nil:
			return a.stop(outage(ErrClosed))
		case c.soonest() > end:
			return a.stop(outage(err))
		}
		if stop := c.pause(a.ctx, pause.next()); stop != nil {
			return a.stop(stop)
		}
		if s := c.session.Load(); s != l.session { // with which ended what it had adopted
			l.enter(s)
			a.asked = false
		}
	}
}

// once asks the store for the grant, and then what it is.
func (a *adoption) once() error {
	c, l := a.l.c, a.l
	ctx, cancel := c.bound(a.ctx)
	err := l.session.Adopt(ctx, a.given, l.req.ID, l.req.Info)
	cancel()
	a.asked = a.asked || err == nil || leftOpen(err)
	l.crossed = l.crossed || leftOpen(err)
	if err != nil {
		return err
	}
	ctx, cancel = c.bound(a.ctx)
	rec, err := c.backend.Inspect(ctx, l.req.Name)
	cancel()
	if err != nil {
		return err
	}
	for _, h := range rec.Holders {
		if h.ID == l.req.ID && !h.Kept {
			l.req.Mode, l.req.N, l.req.Limit = h.Mode, max(h.N, 1), rec.Limit
			return nil
		}
	}
	if a.blank++; a.blank > 3 { // a server that is behind shows it later
		return fmt.Errorf("%w: the store does not show the grant", ErrGone)
	}
	return fmt.Errorf("%w: the store does not show the grant yet", ErrUnavailable)
}

// stop gives back what the store may have given.
func (a *adoption) stop(err error) error {
	l, given := a.l, a.given
	if a.asked {
		l.c.insist(given.Name, l.crossed, func(ctx context.Context) error {
			return l.session.Release(ctx, driver.Hold{Name: given.Name, ID: l.req.ID, Token: given.Token}, 0)
		})
	}
	return err
}

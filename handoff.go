package holdfast

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// A hand-off gives a lease to another process. At every moment the grant exists at the store, and
// at most one process relies on it. The giver's lease ends first, while its client keeps renewing
// the grant. The client with the ticket then adopts the grant at the store, in one step, under a
// request ID of its own. From then on nothing that the giver still sends can end the grant.

// offer is a grant whose lease has been handed off and that nobody has adopted yet.
type offer struct {
	l       *Lease
	adopted chan struct{}
}

// ticketPrefix marks a ticket and the version of its format.
const ticketPrefix = "holdfast2."

// ticket names a grant to the client that is to adopt it. The store has the mode and the permits.
// The request's ID is a hash of the secret, so a store that shows the ID does not give away the
// ticket.
type ticket struct {
	Store  string `json:"store"`
	Name   string `json:"name"`
	Secret []byte `json:"secret"`
	Token  uint64 `json:"token,string"`           // of the lease
	Grant  uint64 `json:"grant,string,omitempty"` // of the grant, if that is another one
}

// grantToken returns the token by which the store knows the grant.
func (t *ticket) grantToken() uint64 { return max(t.Grant, t.Token) }

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
		return nil, fmt.Errorf("%w ticket: %s; allowed is a whole ticket, as it was made", ErrInvalid, what)
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
	if driver.CheckName(t.Name) != nil || len(t.Secret) != len(requestSecret{}) || t.Token == 0 ||
		t.grantToken()-t.Token >= driver.MaxCallBackTokens {
		return bad("it names no grant")
	}
	return &t, nil
}

// HandOff ends the lease in this process as Release does (its contexts end, Err is ErrReleased),
// but keeps the lock: the client goes on renewing the grant until another client has adopted it
// with the ticket. Anyone with the ticket can take the lock, so treat the ticket as a secret.
// HandOff waits for no exchange with the store.
//
// adopted is closed when another client has adopted the grant, or the grant has ended in another
// way; the client notices that within a third of the TTL. Until then keep the client open: Close
// releases the lock. Release ends an offer that nobody has adopted, and with it the grant; it
// returns ErrReleased if somebody has. ErrInvalid for a borrowed lease, and for a read lease whose grant
// other calls of the client share (Config.Passes); with the option Fair each has its own.
func (l *Lease) HandOff() (ticketText string, adopted <-chan struct{}, err error) {
	const op = "hand off"
	if err := l.usable(op); err != nil {
		return "", nil, err
	}
	c := l.c
	fail := func(reason Reason, err error) (string, <-chan struct{}, error) {
		return "", nil, &Error{Op: op, Name: l.req.Name, Reason: reason, Err: err}
	}
	if err := l.Err(); err != nil { // also notices an expiry
		e := err.(*Error)
		return fail(e.Reason, e.Err)
	}
	why := &Error{Op: "use", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	// One step: the lease ends for Downgrade and for borrowers, and becomes an offer for renewals
	// and for the end of the session.
	c.mu.Lock()
	g, bad := l.wholeGrant(op)
	switch {
	case l.ended != nil:
		defer c.mu.Unlock()
		return fail(l.ended.Reason, l.ended.Err)
	case bad != nil:
		c.mu.Unlock()
		return fail("", bad)
	case c.closed:
		c.mu.Unlock()
		return fail("", ErrClosed)
	case l.session.over():
		c.mu.Unlock()
		why := lost("use", &l.req, ReasonSession)
		c.endLost(g, why)
		return fail(why.Reason, why.Err)
	}
	o := &offer{l: g, adopted: make(chan struct{})}
	c.offers[g] = o
	toCancel := c.endTree(g, why, nil)
	c.leaveCohort(g)
	c.mu.Unlock()
	cancelAll(toCancel, why)
	l.recordEnd(HistoryHandedOff, "", !l.pushed, c.coarseNow())
	c.observer.reportHandOff(l)
	if g.latest != forever { // the store may end the grant before the keeper renews it next
		c.startTask(l.req.Name, false, g.renewOffer)
	}
	return l.ticket().String(), o.adopted, nil
}

func (l *Lease) ticket() *ticket {
	secret := l.c.requests.secret(l.number)
	t := &ticket{Store: l.c.backend.Name(), Name: l.req.Name, Secret: secret[:], Token: l.token}
	if l.grantToken != l.token {
		t.Grant = l.grantToken
	}
	return t
}

// Ticket returns a text with which Resume takes the lock up again: after a crash of this process, or
// in another process that goes on with the same work. Store it with the work. Anyone with the text
// can take the lock, so treat it as a secret. It cannot be changed to name another grant. Ticket
// sends nothing to the store. Release then gives the lock back to the store, and does not pass it on to
// another call of the client (Config.Passes). A resumed or adopted lease has another ticket: store that again.
//
// Errors: ErrLost or ErrReleased if the lease has ended; ErrInvalid if it is borrowed, or if other calls
// share its grant, as for HandOff.
func (l *Lease) Ticket() (string, error) {
	const op = "ticket"
	if err := l.usable(op); err != nil {
		return "", err
	}
	if err := l.Err(); err != nil { // also notices an expiry
		return "", l.endedError(op, err.(*Error))
	}
	l.c.mu.Lock()
	g, bad := l.wholeGrant("use")
	ended := l.ended
	if bad == nil {
		g.ticketed = true // in one step with the look at ended: it has not been passed on
	}
	l.c.mu.Unlock()
	switch {
	case ended != nil:
		return "", l.endedError(op, ended)
	case bad != nil:
		return "", &Error{Op: op, Name: l.req.Name, Err: bad}
	}
	return l.ticket().String(), nil
}

// Resume takes up the lock of an earlier lease by its Ticket: the same grant with the same token, or
// ErrGone if that has ended. The grant ends a TTL after the last renewal of a process that has
// crashed, unless it is resumed before.
//
// The caller vouches that the earlier holder does no more work under the lock: both have the same
// token, so a resource cannot tell them apart. An earlier holder that still runs learns of its loss
// at its next renewal, within a third of a TTL. To give a lease to a holder that must not overlap,
// use HandOff. Options and errors are those of Adopt.
func (c *Client) Resume(ctx context.Context, ticketText string, opts ...Option) (*Lease, error) {
	return c.takeOver(ctx, "resume", ticketText, opts)
}

// releaseOffer is Release of a lease that was handed off. It waits for one answer. If the answer
// leaves the release open, it goes on in the background.
func (l *Lease) releaseOffer(ctx context.Context) error {
	c := l.c
	c.mu.Lock()
	offered := c.endOffer(l)
	c.mu.Unlock()
	if !offered {
		return &Error{Op: "release", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	}
	bctx, cancel := c.bound(ctx)
	defer cancel()
	err := c.repeatChange(bctx, func() error { return l.releaseOnce(bctx) })
	switch {
	case err == nil:
		l.cancelLate()
		return nil
	case driver.IsOver(err):
		l.cancelLate()
		return &Error{Op: "release", Name: l.req.Name, Reason: ReasonHandedOff, Err: ErrReleased}
	default:
		l.releaseInBackground()
		return &Error{Op: "release", Name: l.req.Name, Err: asOutage(explain(ctx, err))}
	}
}

// renewOffer is one exchange that makes the store keep an offered grant for a TTL. The keeper notices
// that a grant is gone.
func (l *Lease) renewOffer(ctx context.Context) error {
	_, err := l.session.renewOne(ctx, l.holdID())
	return err
}

// endOffer ends the offer of l, and reports whether there was one. Called with c.mu held.
func (c *Client) endOffer(l *Lease) bool {
	o := c.offers[l]
	delete(c.offers, l)
	if o != nil {
		close(o.adopted)
	}
	return o != nil
}

// Adopt takes over the lock that a HandOff has offered, with the same token: nobody else can have
// had it in between. The store knows its mode: for writing or reading, or how many permits. Of the
// options, MaxHold applies as usual; note and labels replace the giver's. The ticket is good for
// one adoption.
//
// Adopt tries a store that does not answer for up to a TTL. Errors: ErrGone if the grant has ended,
// or somebody has adopted it before; ErrInvalid if this is no ticket, or one of another kind of
// store; ErrUnavailable, ErrUncertain, ErrRefused, ErrClosed, ctx's.
func (c *Client) Adopt(ctx context.Context, ticketText string, opts ...Option) (*Lease, error) {
	return c.takeOver(ctx, "adopt", ticketText, opts)
}

// takeOver is Adopt and Resume. op names the operation in errors.
func (c *Client) takeOver(ctx context.Context, op, ticketText string, opts []Option) (*Lease, error) {
	if err := c.usable(); err != nil {
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
	o.notSticky("a lease that is taken over")
	if o.err != nil {
		return fail(o.err)
	}
	if !c.work.tryAdd() {
		return fail(ErrClosed)
	}
	defer c.work.done()
	given := driver.Hold{Name: t.Name, ID: requestSecret(t.Secret).id(), Token: t.grantToken()}
	a := &adoption{l: &Lease{c: c, op: op, req: r, takenOver: true, index: -1}, o: &o, ctx: ctx, grant: given}
	w := c.newWaitEnd(op, &r)
	a.block = int(t.grantToken()-t.Token) + 1
	a.l.newRequest(c.session.Load())
	if err := a.run(); err != nil {
		l, err := fail(err)
		c.reportWait(ctx, w, err)
		return l, err
	}
	a.l.recordGrant(HistoryAdopted, 0)
	c.addHeld(a.l)
	a.l.reportAcquired(ctx, w, 0)
	return a.l, nil
}

// adoption is one call of Adopt.
type adoption struct {
	l       *Lease
	o       *options
	ctx     context.Context
	grant   driver.Hold
	asked   bool // the store may have given us the grant
	block   int  // the lease has the first token of the last so many of the grant
	missing int  // how often the store has agreed and then shown no such grant
}

// run returns nil when the grant has become a lease.
func (a *adoption) run() error {
	c, l := a.l.c, a.l
	end := c.now() + c.TTL() // the machine may have slept
	pause := backoff.Pause{First: firstPause, Most: time.Second}
	for {
		sent := c.coarseNow()
		err := explain(a.ctx, a.once())
		switch {
		case err == nil && c.startLease(l, a.o, a.grant.Token, sent):
			return nil
		case err == nil: // the answer came so late that it has to be confirmed
		case driver.IsOver(err):
			return a.abort(fmt.Errorf("%w: the grant has ended, or somebody has adopted it before", ErrGone))
		case decided(err):
			return a.abort(err)
		}
		switch {
		case a.ctx.Err() != nil:
			return a.abort(cause(a.ctx))
		case c.coarseNow() > end && err == nil && !l.session.over():
			return a.abort(l.tooSlow())
		case c.coarseNow() > end && err == nil:
			return a.abort(asOutage(ErrClosed))
		case c.coarseNow() > end:
			return a.abort(asOutage(err))
		}
		if stop := c.pause(a.ctx, pause.Next()); stop != nil {
			return a.abort(stop)
		}
		if s := c.session.Load(); s != l.session { // the adopted grant ended with its session
			l.newRequest(s)
			a.asked = false
		}
	}
}

// once asks the store for the grant, and then for its mode.
func (a *adoption) once() error {
	c, l := a.l.c, a.l
	ctx, cancel := c.bound(a.ctx)
	err := l.session.Adopt(ctx, a.grant, l.req.ID, l.req.Info)
	cancel()
	a.asked = a.asked || err == nil || leftOpen(err)
	l.unanswered = l.unanswered || leftOpen(err)
	if err != nil {
		return err
	}
	ctx, cancel = c.bound(a.ctx)
	rec, err := c.store.Inspect(ctx, l.req.Name)
	cancel()
	if err != nil {
		return err
	}
	for _, h := range rec.Holders {
		if h.ID == l.req.ID && !h.Kept {
			l.req.Mode, l.req.N, l.req.Limit, l.req.Tokens = h.Mode, max(h.N, 1), rec.Limit, a.block
			return nil
		}
	}
	if a.missing++; a.missing > 3 { // a server that lags behind shows it later
		return fmt.Errorf("%w: the store does not show the grant", ErrGone)
	}
	return fmt.Errorf("%w: the store does not show the grant yet", ErrUnavailable)
}

// abort releases in the background what the store may have given us, and returns err.
func (a *adoption) abort(err error) error {
	l, given := a.l, a.grant
	if a.asked {
		l.c.startTask(given.Name, l.unanswered, func(ctx context.Context) error {
			return l.session.Release(ctx, driver.Hold{Name: given.Name, ID: l.req.ID, Token: given.Token}, 0)
		})
	}
	return err
}

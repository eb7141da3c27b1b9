package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
)

// InTx takes the mutex of that name in tx, a transaction of the caller on the store's own database:
// the lock is taken if and only if tx is committed, together with all that tx writes. tx is a
// *sql.Tx, or with PostgreSQL a pgx.Tx. InTx waits for nobody.
//
// Nobody holds the lock before the commit. After it, Resume makes a lease of the ticket, in this
// process or in another one that got the ticket from a row of tx; like every ticket it is a secret.
// Resume returns ErrGone if tx was rolled back, if it has not been committed yet, or if the grant
// has expired: it lasts for a TTL from InTx, also while tx is open. So commit and resume within a
// TTL. A lease begins to count when Resume asks the store.
//
// Other clients see the name free while tx is open, and cannot take it. A Lock meanwhile waits for
// the end of tx, at most a TTL, and then fails with ErrUnavailable. TryLock does so within a third of
// the TTL, at most some 5 s. Of the options, MinHold, Note and Label have an effect. In REPEATABLE
// READ and above, call InTx before other statements.
//
// Errors: ErrHeld, also if another transaction has locked the name's row: tx can go on. After all
// others, roll tx back. ErrRetry: then run it again, as after an error 40001 of its other statements
// or its commit. ErrKind, ErrInvalid (also for a store without transactions), ErrUnavailable,
// ErrUncertain, ErrRefused, ErrDamaged, ErrClosed, ctx's.
func (c *Client) InTx(ctx context.Context, tx any, name string, opts ...Option) (ticketText string, err error) {
	const op = "lock in a transaction"
	fail := func(err error, h *driver.Holder) (string, error) {
		return "", &Error{Op: op, Name: name, Holder: c.holder(h), Err: err}
	}
	if err := c.usable(); err != nil {
		return fail(err, nil)
	}
	r, o := c.request(name, driver.Exclusive, 1, 0, opts)
	o.notSticky("a lease of a transaction")
	if o.err != nil {
		return fail(o.err, nil)
	}
	if !c.work.tryAdd() {
		return fail(ErrClosed, nil)
	}
	defer c.work.done()
	number, id := c.requests.next()
	r.ID = id
	bctx, cancel := c.bound(ctx)
	defer cancel()
	reply, err := driver.AcquireInTx(bctx, c.backend, tx, &r, c.TTL())
	switch {
	case err != nil:
		return fail(explain(ctx, err), nil)
	case reply.Token == 0:
		return fail(ErrHeld, reply.Holder)
	}
	secret := c.requests.secret(number)
	return (&ticket{Store: c.backend.Name(), Name: name, Secret: secret[:], Token: reply.Token}).String(), nil
}

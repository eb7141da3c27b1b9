package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Tx is a transaction of the application, as AcquireInTx uses it. Statements are in the form of
// Dialect.InTx. After the end of the transaction they return sql.ErrTxDone.
type Tx interface {
	// Row runs a statement and scans its first row. False: there is no row.
	Row(ctx context.Context, text string, args []any, dest ...any) (found bool, err error)

	// Exec runs a statement and returns how many rows it has changed.
	Exec(ctx context.Context, text string, args []any) (int64, error)
}

// SQLTx makes a Tx of a transaction of database/sql.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Row(ctx context.Context, text string, args []any, dest ...any) (bool, error) {
	err := t.tx.QueryRowContext(ctx, text, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (t sqlTx) Exec(ctx context.Context, text string, args []any) (int64, error) {
	done, err := t.tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

var _ driver.TxBackend = (*Server)(nil)

// AcquireInTx implements [driver.TxBackend].
//
// It first looks at the name outside of tx: tx would keep the lock on the row of a name that somebody
// holds, and hold up the renewals of that holder. If the name seems free, these steps follow in tx:
//
//   - It locks the row, or gives up if the row is locked already.
//   - Package rule decides.
//   - It writes the row.
//
// The lock on the row excludes every other grant of the name until tx ends. So the token is larger
// than all before it, and nobody else can get it. The lease counts from this call: if tx stays open
// for longer, the grant has expired when it is committed.
func (b *Server) AcquireInTx(ctx context.Context, tx any, req *driver.Request, ttl time.Duration) (
	rep driver.Reply, err error) {
	t := b.d.Tx(tx)
	switch {
	case t == nil:
		return rep, fmt.Errorf("%w transaction: a %T is none of a client library that this store knows", driver.ErrInvalid,
			tx)
	case req.Mode != driver.Exclusive || req.Wait:
		return rep, fmt.Errorf("%w request: in a transaction only an exclusive one that does not wait", driver.ErrInvalid)
	}
	if err := errors.Join(req.Check(), b.ready(ctx)); err != nil {
		return rep, err
	}
	began := time.Now()
	clock, rep, err := b.seemsFree(ctx, req, ttl)
	if err != nil || rep.Token == 0 {
		return rep, notCommitted(err)
	}
	r, err := b.lockInTx(ctx, t, req.Name)
	if err != nil || r == nil {
		return driver.Reply{}, b.inTxFault(err)
	}
	if off := ofMicros(r.now - clock); off < -time.Second || off > time.Since(began)+time.Second {
		return driver.Reply{}, fmt.Errorf("%w transaction: its clock is %v off the store's: it is on another server, or its "+
			"session has set the time", driver.ErrInvalid, off)
	}
	token := decideInTx(r, req, ttl)
	if token == 0 {
		return driver.Reply{}, b.lateRefusal(ctx, r)
	}
	c := r.encode()
	text, args := b.d.InTx(updateText, append(r.values(&c), []byte(r.name), r.ver))
	n, err := t.Exec(ctx, text, args)
	if err == nil && n != 1 { // cannot happen: the row is locked
		err = fmt.Errorf("%w: %d rows were written", driver.ErrRetry, n)
	}
	if err != nil {
		return driver.Reply{}, b.inTxFault(err)
	}
	return driver.Reply{Token: token}, nil
}

// seemsFree reads the row outside of the application's transaction, and makes sure that there is
// one. Otherwise a missing row would be locked together with its neighbours (MySQL's gaps), or others
// would wait for the end of an insert (PostgreSQL). Without a Token the name is not free. clock is
// the server's.
func (b *Server) seemsFree(ctx context.Context, req *driver.Request, ttl time.Duration) (
	clock int64, rep driver.Reply, err error) {
	r, err := b.loadOne(ctx, req.Name)
	if err != nil {
		return 0, rep, err
	}
	if r.damaged != nil {
		return 0, rep, r.damaged
	}
	now, exists := ofMicros(r.now), r.exists
	token, ahead, _, err := r.entry.Acquire(now, req, "", ttl)
	rep = driver.Reply{Token: token, Ahead: ahead, Retry: r.entry.Retry(now), Holder: r.entry.First(now)}
	if err != nil || exists || token == 0 {
		return r.now, rep, err
	}
	err = b.with(ctx, req.Name, func(ctx context.Context) error {
		passOf(ctx).brief = true
		return b.run(ctx, func(ctx context.Context, l sqlConn) error {
			return b.singleOn(ctx, l, func(ctx context.Context, q Querier) error {
				_, err := b.save(ctx, q, &record{name: req.Name}, &columns{})
				return err
			})
		})
	})
	if errors.Is(err, errAgain) { // somebody has made the row meanwhile, and locked it
		return r.now, driver.Reply{}, nil
	}
	return r.now, rep, err
}

// lateRefusal explains why a name that seemed free is not, now that its row is locked. That lock
// would hold up the holder's renewals, so the application has to end its transaction. If nobody else
// sees r, the application's own transaction has written it; a retry would not help.
func (b *Server) lateRefusal(ctx context.Context, r *record) error {
	seen, err := b.loadOne(ctx, r.name)
	if err != nil || seen.ver != r.ver {
		return notCommitted(err)
	}
	return fmt.Errorf("%w: somebody has taken the name in this moment", driver.ErrRetry)
}

// lockInTx locks and reads the row of a name in the application's transaction. nil: another one has
// locked it.
func (b *Server) lockInTx(ctx context.Context, t Tx, name string) (*record, error) {
	text, args := b.d.InTx("SELECT "+recordColumns+", {now} FROM hf_lock WHERE name = ? FOR UPDATE SKIP LOCKED",
		[]any{[]byte(name)})
	row := txRow{ctx: ctx, t: t, text: text, args: args}
	r := &record{floor: b.floor.Load()}
	err := r.scan(&row)
	switch {
	case err != nil:
		return nil, err
	case row.found:
		return r, nil
	}
	unseen, err := b.d.Unseen(ctx, t, name)
	if err != nil {
		return nil, err
	}
	if unseen {
		return nil, fmt.Errorf("%w: it began before the store knew the name", driver.ErrRetry)
	}
	// If a sweep has deleted the row, MySQL has locked the gap, where others insert new names.
	now, err := b.loadOne(ctx, name)
	if err == nil && !now.exists {
		err = fmt.Errorf("%w: the name's row was deleted in this moment", driver.ErrRetry)
	}
	return nil, err
}

// loadOne reads the row of a name outside of the application's transaction.
func (b *Server) loadOne(ctx context.Context, name string) (r *record, err error) {
	err = b.read(ctx, func(ctx context.Context, l sqlConn) error {
		all, err := b.load(ctx, b.on(l), []string{name}, "")
		r = all[0]
		return err
	})
	return r, err
}

// txSession is the session of a grant that nobody has resumed. It is that of no Server: one would
// give back a grant of its own that nobody wants, when somebody reports it in a forged notification.
const txSession = "tx"

// decideInTx lets package rule decide about a locked row. With token 0 the row stays as it is.
func decideInTx(r *record, req *driver.Request, ttl time.Duration) (token uint64) {
	if r.damaged == nil {
		token, _, _, _ = r.entry.Acquire(ofMicros(r.now), req, txSession, ttl) // 0 if it fails
	}
	return token
}

var updateText = "UPDATE hf_lock SET " + strings.Join(writtenColumns, " = ?, ") + " = ? WHERE name = ? AND ver = ?"

// txRow is the first row of a statement, for record.scan.
type txRow struct {
	ctx   context.Context
	t     Tx
	text  string
	args  []any
	found bool
}

func (r *txRow) Scan(dest ...any) (err error) {
	r.found, err = r.t.Row(r.ctx, r.text, r.args, dest...)
	return err
}

// inTxFault wraps the error of a statement in the application's transaction, which is not committed.
func (b *Server) inTxFault(err error) error {
	if err == nil || errors.Is(err, driver.ErrRetry) {
		return err
	}
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w transaction: it has ended", driver.ErrInvalid)
	case b.d.Fault(err) == Again:
		return fmt.Errorf("%w: %w", driver.ErrRetry, err)
	}
	return notCommitted(b.fault(err))
}

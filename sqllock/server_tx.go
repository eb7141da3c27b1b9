package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TxIdleLimit is how long a transaction may hold row locks while its client is silent. Then the
// server rolls it back: the client may be stopped or cut off, and others wait for the rows.
const TxIdleLimit = time.Second

// Transactions is how a server runs them.
type Transactions struct {
	// Begin are the statements that begin a transaction. In it, each statement, or at least each
	// that locks the rows it reads, sees everything committed before that statement. The server
	// ends its connection after TxIdleLimit.
	Begin []string

	// After undoes Begin's changes to the connection.
	After []string

	// Tells reports that Announce does something. If so, a grant to waiters of other Servers needs
	// a transaction.
	Tells bool

	// Lossy reports that a crash of the server may lose a release that it has answered.
	Lossy bool
}

// sqlConn runs statements and transactions: on the application's pool, or on the reserved
// connection, which does not wait for the application.
type sqlConn interface {
	begin(ctx context.Context, t Transactions) (*transaction, error)
	exec(ctx context.Context, text string, args []any) (sql.Result, error)
	query(ctx context.Context, text string, args []any) (*sql.Rows, error)
}

// executor is a sqlConn: a *sql.DB or a *sql.Conn.
type executor struct {
	o interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}
}

func (w executor) exec(ctx context.Context, text string, args []any) (sql.Result, error) {
	return w.o.ExecContext(ctx, text, args...)
}

func (w executor) query(ctx context.Context, text string, args []any) (*sql.Rows, error) {
	return w.o.QueryContext(ctx, text, args...)
}

// begin begins a transaction. Its statements wait for a row no longer than ctx allows.
func (b *Server) begin(ctx context.Context, l sqlConn) (*transaction, error) {
	t := b.d.Transactions()
	if brief(ctx) {
		t.Begin = slices.Clone(t.Begin)
		for i, text := range t.Begin {
			t.Begin[i] = b.d.Bounded(text, true)
		}
	}
	return l.begin(ctx, t)
}

func (w executor) begin(ctx context.Context, how Transactions) (*transaction, error) {
	db, pooled := w.o.(*sql.DB)
	if !pooled {
		return beginOn(ctx, w.o.(*sql.Conn), false, how)
	}
	// All connections of the pool may have broken since their last use.
	for broken := db.Stats().OpenConnections; ; broken-- {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		t, err := beginOn(ctx, conn, true, how)
		if err == nil || broken <= 0 || !errors.Is(err, sqldriver.ErrBadConn) {
			return t, err
		}
	}
}

// transaction has a connection to itself until commit or rollback.
type transaction struct {
	conn  *sql.Conn
	ours  bool // from the pool, to be returned
	after []string
}

func beginOn(ctx context.Context, conn *sql.Conn, ours bool, how Transactions) (*transaction, error) {
	t := &transaction{conn, ours, how.After}
	if err := t.each(ctx, how.Begin); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

func (t *transaction) each(ctx context.Context, statements []string) error {
	for _, text := range statements {
		if _, err := t.conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func (t *transaction) commit(ctx context.Context) error {
	if err := t.each(ctx, []string{"COMMIT"}); err != nil {
		t.discard()
		return err
	}
	t.end(ctx)
	return nil
}

func (t *transaction) rollback(ctx context.Context) {
	if err := t.each(ctx, []string{"ROLLBACK"}); err != nil {
		t.discard()
		return
	}
	t.end(ctx)
}

// end returns the connection in its former state.
func (t *transaction) end(ctx context.Context) {
	if err := t.each(ctx, t.after); err != nil {
		t.discard()
	} else if t.ours {
		_ = t.conn.Close()
	}
}

// discard closes the connection, so that the server rolls back.
func (t *transaction) discard() {
	_ = t.conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // makes the pool drop it
	if t.ours {
		_ = t.conn.Close()
	}
}

// notCommitted adjusts the error of a statement whose transaction was not committed.
func notCommitted(err error) error {
	switch {
	case !errors.Is(err, driver.ErrUncertain):
	case errors.Is(err, sql.ErrConnDone): // another connection may work
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, sql.ErrConnDone)
	default:
		return fmt.Errorf("%w: in a transaction that was not committed: %v", driver.ErrUnavailable, err)
	}
	return err
}

// RowWait bounds how long a statement waits for a row that another transaction has locked, where
// the server has such a limit. The server keeps waiting after the caller has gone, and the
// connection stays in use.
const RowWait = time.Second

// inTx runs statements in a transaction.
type inTx struct {
	t *transaction
	d Dialect
}

func (q inTx) Prepared() Querier { return q }

func (q inTx) form(ctx context.Context, text string, args []any) (string, []any) {
	text, args = q.d.Inline(text, args)
	if q.t.ours {
		text = q.d.Bounded(text, brief(ctx))
	}
	return text, args
}

func (q inTx) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.form(ctx, text, args)
	return q.t.conn.ExecContext(ctx, text, args...)
}

func (q inTx) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.form(ctx, text, args)
	return q.t.conn.QueryContext(ctx, text, args...)
}

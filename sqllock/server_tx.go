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

// Silence is how long a transaction may have locked rows while nothing is heard of it. Then the server rolls it
// back: whoever began it may be stopped, or cut off, and others wait for the rows.
const Silence = time.Second

// Transactions is how a server makes them.
type Transactions struct {
	// Begin are the statements that begin one, in which each statement, or at least each that locks what it
	// reads, sees what was committed before it; and of which the server ends the connection after Silence.
	Begin []string

	// After undoes what Begin has changed of the connection.
	After []string

	// Tells says that Announce does something, so that who grants to waiters of other Servers needs one.
	Tells bool
}

// link is where transactions begin: the application's pool, or the connection that is kept for
// renewals, so that they do not wait for the application.
type link interface {
	begin(ctx context.Context, t Transactions) (*transaction, error)
	exec(ctx context.Context, text string, args []any) (sql.Result, error)
	query(ctx context.Context, text string, args []any) (*sql.Rows, error)
}

// way is a link: a *sql.DB or a *sql.Conn.
type way struct {
	o interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}
}

func (w way) exec(ctx context.Context, text string, args []any) (sql.Result, error) {
	return w.o.ExecContext(ctx, text, args...)
}

func (w way) query(ctx context.Context, text string, args []any) (*sql.Rows, error) {
	return w.o.QueryContext(ctx, text, args...)
}

// begin begins a transaction, in which statements wait for a row no longer than ctx says.
func (b *Server) begin(ctx context.Context, l link) (*transaction, error) {
	t := b.d.Transactions()
	if brief(ctx) {
		t.Begin = slices.Clone(t.Begin)
		for i, text := range t.Begin {
			t.Begin[i] = b.d.Bounded(text, true)
		}
	}
	return l.begin(ctx, t)
}

func (w way) begin(ctx context.Context, how Transactions) (*transaction, error) {
	db, pooled := w.o.(*sql.DB)
	if !pooled {
		return beginOn(ctx, w.o.(*sql.Conn), false, how)
	}
	// As many as the pool has may have broken since they were used.
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

// transaction is one of ours, on a connection that nobody else uses meanwhile. It has ended after commit or
// rollback.
type transaction struct {
	conn  *sql.Conn
	ours  bool // of the pool, to be given back
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

// end gives the connection back as it was.
func (t *transaction) end(ctx context.Context) {
	if err := t.each(ctx, t.after); err != nil {
		t.discard()
	} else if t.ours {
		_ = t.conn.Close()
	}
}

// discard closes the connection, so that the server rolls back what it hears of that.
func (t *transaction) discard() {
	_ = t.conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // the pool forgets it
	if t.ours {
		_ = t.conn.Close()
	}
}

// notCommitted is what the error of a statement in a transaction means that is not committed after it.
func notCommitted(err error) error {
	switch {
	case !errors.Is(err, driver.ErrUncertain):
	case errors.Is(err, sql.ErrConnDone): // another may do
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, sql.ErrConnDone)
	default:
		return fmt.Errorf("%w: in a transaction that was not committed: %v", driver.ErrUnavailable, err)
	}
	return err
}

// RowWait is how long a statement may wait for a row that another transaction has locked, where the server can be told so.
// The server goes on waiting when its caller has gone, and the connection is in use for as long.
const RowWait = time.Second

// inTx runs statements in a transaction.
type inTx struct {
	t *transaction
	d Dialect
}

// Often implements [Querier].
func (q inTx) Often() Querier { return q }

func (q inTx) form(ctx context.Context, text string, args []any) (string, []any) {
	text, args = q.d.Inline(text, args)
	if q.t.ours {
		text = q.d.Bounded(text, brief(ctx))
	}
	return text, args
}

// Exec implements [Querier].
func (q inTx) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.form(ctx, text, args)
	return q.t.conn.ExecContext(ctx, text, args...)
}

// Query implements [Querier].
func (q inTx) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.form(ctx, text, args)
	return q.t.conn.QueryContext(ctx, text, args...)
}

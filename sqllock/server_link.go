package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// link is where transactions begin: the application's pool, or the connection that is kept for
// renewals, so that they do not wait for the application.
type link interface {
	begin(ctx context.Context) (*sql.Tx, error)
	prepare(ctx context.Context, text string) (*sql.Stmt, error)
	exec(ctx context.Context, text string, args []any) (sql.Result, error)
	query(ctx context.Context, text string, args []any) (*sql.Rows, error)
}

// opener is what a *sql.DB and a *sql.Conn have in common.
type opener interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

// prepared is a pool or a connection with its prepared statements.
type prepared struct {
	o    opener
	opts *sql.TxOptions

	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func newPrepared(o opener, opts *sql.TxOptions) *prepared {
	return &prepared{o: o, opts: opts, stmts: map[string]*sql.Stmt{}}
}

func (p *prepared) begin(ctx context.Context) (*sql.Tx, error) { return p.o.BeginTx(ctx, p.opts) }

func (p *prepared) exec(ctx context.Context, text string, args []any) (sql.Result, error) {
	return p.o.ExecContext(ctx, text, args...)
}

func (p *prepared) query(ctx context.Context, text string, args []any) (*sql.Rows, error) {
	return p.o.QueryContext(ctx, text, args...)
}

func (p *prepared) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	p.mu.Lock()
	stmt := p.stmts[text]
	p.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := p.o.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.stmts[text]; first != nil {
		_ = stmt.Close()
		return first, nil
	}
	p.stmts[text] = stmt
	return stmt, nil
}

func (p *prepared) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stmt := range p.stmts {
		_ = stmt.Close()
	}
	p.stmts = map[string]*sql.Stmt{}
}

// direct runs each statement by itself.
type direct struct {
	l link
	d Dialect
}

// Exec implements [Querier].
func (q direct) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.d.Inline(text, args)
	return q.l.exec(ctx, text, args)
}

// Query implements [Querier].
func (q direct) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.d.Inline(text, args)
	return q.l.query(ctx, text, args)
}

// Prepared implements [Querier].
func (q direct) Prepared(ctx context.Context, text string, args ...any) (sql.Result, error) {
	stmt, err := q.l.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

// inTx runs statements in a transaction.
type inTx struct {
	tx *sql.Tx
	d  Dialect
}

// Exec implements [Querier].
func (q inTx) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	text, args = q.d.Inline(text, args)
	return q.tx.ExecContext(ctx, text, args...)
}

// Query implements [Querier].
func (q inTx) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text, args = q.d.Inline(text, args)
	return q.tx.QueryContext(ctx, text, args...)
}

// Prepared implements [Querier]: in a transaction preparing does not pay.
func (q inTx) Prepared(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return q.Exec(ctx, text, args...)
}

// keptConn is one connection of the pool that the application cannot take, for what must not
// wait: renewals, and releases when the pool is exhausted.
type keptConn struct {
	db   *sql.DB
	opts *sql.TxOptions
	turn chan struct{} // holds a value while nobody uses it
	conn *sql.Conn
	p    *prepared

	opened time.Time // when conn was connected, at the latest
}

func newKeptConn(db *sql.DB, opts *sql.TxOptions) *keptConn {
	k := &keptConn{db: db, opts: opts, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// use runs f on the connection, one at a time. A connection that has broken meanwhile, which
// is found when nothing has been sent yet, is replaced.
func (k *keptConn) use(ctx context.Context, f func(l link) error) error {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	for try := 1; ; try++ {
		if k.conn == nil {
			conn, err := k.db.Conn(ctx)
			if err != nil {
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
			}
			if err := conn.PingContext(ctx); err != nil { // the pool may have given one that is broken
				_ = conn.Close()
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
			}
			k.conn, k.p, k.opened = conn, newPrepared(conn, k.opts), time.Now()
		}
		err := f(k.p)
		stale := errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
		if stale || err != nil && !answered(err) {
			k.drop()
		}
		if !stale || try == 2 {
			return err
		}
	}
}

// answered reports whether an error is the server's answer, so that its connection is good.
func answered(err error) bool {
	return stands(err) || errors.Is(err, errAgain) || errors.Is(err, driver.ErrRefused)
}

func (k *keptConn) drop() {
	if k.conn != nil {
		k.p.close()
		_ = k.conn.Close()
		k.conn, k.p = nil, nil
	}
}

// close gives the connection back, when nobody uses it.
func (k *keptConn) close() {
	<-k.turn
	k.drop()
	k.turn <- struct{}{}
}

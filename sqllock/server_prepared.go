package sqllock

import (
	"context"
	"database/sql"
	"sync"
)

// prepared are statements that the server has parsed already. The pool prepares each one again on
// connections that lack it.
type prepared struct {
	db *sql.DB
	d  Dialect

	mu  sync.Mutex
	by  map[string]*sql.Stmt
	off bool // closed, or the server cannot prepare
}

func newPrepared(db *sql.DB, d Dialect) *prepared {
	return &prepared{db: db, d: d, by: map[string]*sql.Stmt{}}
}

// statement returns nil if text must run unprepared.
func (p *prepared) statement(ctx context.Context, text string, args []any) *sql.Stmt {
	p.mu.Lock()
	stmt, off := p.by[text], p.off
	p.mu.Unlock()
	if off || brief(ctx) { // prepared statements have the usual limit
		return nil
	}
	if stmt != nil {
		return stmt
	}
	form := p.d.Prepare(text, args)
	if form == "" {
		return nil
	}
	stmt, err := p.db.PrepareContext(ctx, p.d.Bounded(form, false))
	if err != nil {
		p.failed(err)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off || p.by[text] != nil { // another call has prepared it meanwhile
		_ = stmt.Close()
		return p.by[text]
	}
	p.by[text] = stmt
	return stmt
}

// failed reports whether preparing caused err, so that text itself may work. It ends all preparing.
func (p *prepared) failed(err error) bool {
	if p.d.Fault(err) != Unprepared {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = true
	return true
}

// close closes all statements. It must be the last call.
func (p *prepared) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stmt := range p.by {
		_ = stmt.Close()
	}
	p.by, p.off = nil, true
}

// preparedQuerier is a Querier of the pool that prepares statements.
type preparedQuerier struct {
	direct
	p *prepared
}

func (q preparedQuerier) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if stmt := q.p.statement(ctx, text, args); stmt != nil {
		res, err := stmt.ExecContext(ctx, q.d.Bind(args)...)
		if err == nil || !q.p.failed(err) {
			return res, err
		}
	}
	return q.direct.Exec(ctx, text, args...)
}

func (q preparedQuerier) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if stmt := q.p.statement(ctx, text, args); stmt != nil {
		rows, err := stmt.QueryContext(ctx, q.d.Bind(args)...)
		if err == nil || !q.p.failed(err) {
			return rows, err
		}
	}
	return q.direct.Query(ctx, text, args...)
}

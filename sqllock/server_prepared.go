package sqllock

import (
	"context"
	"database/sql"
	"sync"
)

// prepared are statements that the server has parsed already. The pool prepares each anew on connections that
// do not have it.
type prepared struct {
	db *sql.DB
	d  Dialect

	mu  sync.Mutex
	by  map[string]*sql.Stmt
	off bool // closed, or the server does not prepare
}

func newPrepared(db *sql.DB, d Dialect) *prepared {
	return &prepared{db: db, d: d, by: map[string]*sql.Stmt{}}
}

// statement returns nil if text has to do as it is.
func (p *prepared) statement(ctx context.Context, text string, args []any) *sql.Stmt {
	p.mu.Lock()
	stmt, off := p.by[text], p.off
	p.mu.Unlock()
	if off || brief(ctx) { // it was prepared with the usual limit
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
	if p.off || p.by[text] != nil { // another has prepared it meanwhile
		_ = stmt.Close()
		return p.by[text]
	}
	p.by[text] = stmt
	return stmt
}

// failed reports whether an error is about preparing, so that text may do; nothing is prepared from then on.
func (p *prepared) failed(err error) bool {
	if p.d.Fault(err) != Unprepared {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = true
	return true
}

// close forgets all. Nobody else uses p any more.
func (p *prepared) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stmt := range p.by {
		_ = stmt.Close()
	}
	p.by, p.off = nil, true
}

// often is a Querier of the pool that prepares.
type often struct {
	direct
	p *prepared
}

// Exec implements [Querier].
func (q often) Exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if stmt := q.p.statement(ctx, text, args); stmt != nil {
		res, err := stmt.ExecContext(ctx, q.d.Bind(args)...)
		if err == nil || !q.p.failed(err) {
			return res, err
		}
	}
	return q.direct.Exec(ctx, text, args...)
}

// Query implements [Querier].
func (q often) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if stmt := q.p.statement(ctx, text, args); stmt != nil {
		rows, err := stmt.QueryContext(ctx, q.d.Bind(args)...)
		if err == nil || !q.p.failed(err) {
			return rows, err
		}
	}
	return q.direct.Query(ctx, text, args...)
}

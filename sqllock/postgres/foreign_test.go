package postgres_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"

	"github.com/jackc/pgx/v5/stdlib"
)

// Driver "foreign" stands for any driver but pgx's: its connections have another type, and accept
// only database/sql's kinds of arguments.
func init() { sql.Register("foreign", foreign{}) }

type foreign struct{}

func (foreign) Open(dsn string) (sqldriver.Conn, error) {
	c, err := stdlib.GetDefaultDriver().Open(dsn)
	if err != nil {
		return nil, err
	}
	return &foreignConn{c.(*stdlib.Conn)}, nil
}

type foreignConn struct{ c *stdlib.Conn }

func (f *foreignConn) Prepare(query string) (sqldriver.Stmt, error) { return f.c.Prepare(query) }
func (f *foreignConn) Close() error                                 { return f.c.Close() }
func (f *foreignConn) Begin() (sqldriver.Tx, error) {
	return f.c.BeginTx(context.Background(), sqldriver.TxOptions{})
}

func (f *foreignConn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	return f.c.BeginTx(ctx, o)
}

func (f *foreignConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (
	sqldriver.Result, error) {
	return f.c.ExecContext(ctx, query, args)
}

func (f *foreignConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (
	sqldriver.Rows, error) {
	return f.c.QueryContext(ctx, query, args)
}

func (f *foreignConn) ResetSession(ctx context.Context) error { return f.c.ResetSession(ctx) }

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// Tx implements [sqllock.Dialect].
func (d *dialect) Tx(tx any) sqllock.Tx {
	switch tx := tx.(type) {
	case *sql.Tx:
		if tx != nil {
			return sqllock.SQLTx(tx)
		}
	case pgx.Tx:
		if v := reflect.ValueOf(tx); v.Kind() != reflect.Pointer || !v.IsNil() { // as a nil *pgxpool.Tx is
			return pgxTx{tx}
		}
	}
	return nil
}

// pgxTx is a transaction of pgx itself.
type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) Row(ctx context.Context, text string, args []any, dest ...any) (bool, error) {
	err := t.tx.QueryRow(ctx, text, args...).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, ended(err)
}

func (t pgxTx) Exec(ctx context.Context, text string, args []any) (int64, error) {
	done, err := t.tx.Exec(ctx, text, args...)
	return done.RowsAffected(), ended(err)
}

// ended names the end of a transaction as database/sql does.
func ended(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return sql.ErrTxDone
	}
	return err
}

// InTx implements [sqllock.Dialect]. A limit for the wait for a row would apply to the application's
// later statements.
func (d *dialect) InTx(statement string, args []any) (string, []any) {
	return strings.ReplaceAll(d.Text(statement), bounded, "1"), args
}

// Unseen implements [sqllock.Dialect].
func (d *dialect) Unseen(ctx context.Context, t sqllock.Tx, name string) (bool, error) {
	text, args := d.InTx("SELECT COUNT(*) FROM hf_lock WHERE name = ?", []any{[]byte(name)})
	var n int
	_, err := t.Row(ctx, text, args, &n)
	return n == 0, err
}

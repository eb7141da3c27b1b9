package mysql

import (
	"context"
	"database/sql"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// Tx implements [sqllock.Dialect].
func (d *dialect) Tx(tx any) sqllock.Tx {
	if tx, ok := tx.(*sql.Tx); ok && tx != nil {
		return sqllock.SQLTx(tx)
	}
	return nil
}

// InTx implements [sqllock.Dialect].
func (d *dialect) InTx(statement string, args []any) (string, []any) {
	return d.Inline(d.Text(statement), args)
}

// Unseen implements [sqllock.Dialect]. A locking read sees every row.
func (d *dialect) Unseen(context.Context, sqllock.Tx, string) (bool, error) { return false, nil }

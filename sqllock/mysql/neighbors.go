package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/sqllock"
)

var _ sqllock.Neighbors = (*dialect)(nil)

// longestUserLock is the length of the longest name that GET_LOCK takes, in characters. Servers fail
// for longer ones.
const longestUserLock = 64

// Neighbors implements [sqllock.Neighbors]: whether a connection has the name by GET_LOCK. Every user
// may ask that.
func (d *dialect) Neighbors(ctx context.Context, db *sql.DB, name string) ([]string, error) {
	if utf8.RuneCountInString(name) > longestUserLock {
		return nil, nil
	}
	var connection sql.NullInt64
	text, args := d.Inline("SELECT IS_USED_LOCK(?)", []any{name})
	if err := db.QueryRowContext(ctx, text, args...).Scan(&connection); err != nil || !connection.Valid {
		return nil, err
	}
	return []string{fmt.Sprintf("user lock %q (GET_LOCK, by connection %d)", name, connection.Int64)}, nil
}

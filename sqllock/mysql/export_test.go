package mysql

import (
	"context"
	"database/sql"
	"strings"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// Now is the clock of Dialect.
const Now = now

// DialectAt is Dialect with another clock: an expression in microseconds.
func DialectAt(now string) sqllock.Dialect { return newDialect(now) }

// Edited is DialectAt with text replaced in its statements, and whether any statement contained it.
func Edited(now, old, text string) (sqllock.Dialect, bool) {
	d, found := newDialect(now), false
	for _, s := range []*string{&d.try, &d.wait, &d.free, &d.joinBlind, &d.joinSeen, &d.freeing, &d.handing,
		&d.handingSeen, &d.leave} {
		found = found || strings.Contains(*s, old)
		*s = strings.ReplaceAll(*s, old, text)
	}
	return d, found
}

// NotReturning is Dialect for a server whose INSERT returns no rows, such as MySQL.
func NotReturning() sqllock.Dialect { return notReturning{newDialect(now)} }

type notReturning struct{ *dialect }

func (d notReturning) Check(ctx context.Context, db *sql.DB) (sqllock.Circumstances, error) {
	c, err := d.dialect.Check(ctx, db)
	d.returns.Store(false)
	d.shows.Store(false)
	return c, err
}

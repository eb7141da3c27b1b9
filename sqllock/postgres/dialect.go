package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// now is the server's clock in microseconds when a statement begins; the same all through it.
const now = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"

// Dialect returns the dialect of PostgreSQL 12 and later. It works with pools of
// github.com/jackc/pgx/v5/stdlib, under every isolation level.
func Dialect() sqllock.Dialect { return newDialect(now) }

type dialect struct {
	clock             *strings.Replacer
	try, wait         string
	hand, leave, tell string
	renew             string
}

func newDialect(now string) *dialect {
	d := &dialect{clock: strings.NewReplacer("{now}", now)}
	d.try, d.wait = d.clock.Replace(tryText), d.clock.Replace(waitText)
	d.hand, d.leave, d.renew = d.clock.Replace(handText), d.clock.Replace(leaveText), d.clock.Replace(renewText)
	return d
}

// Name implements [sqllock.Dialect].
func (d *dialect) Name() string { return "postgres" }

// Migrations implements [sqllock.Dialect]. Half of each page is left free, so that a row's new version
// finds room beside the old one and no index has to be changed.
func (d *dialect) Migrations() [][]string {
	return [][]string{{
		`CREATE TABLE IF NOT EXISTS hf_meta (
	one smallint PRIMARY KEY, version integer NOT NULL, floor bigint NOT NULL, swept bigint NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS hf_lock (
	name bytea PRIMARY KEY, kind smallint NOT NULL, lim integer NOT NULL, counter bigint NOT NULL,
	token bigint NOT NULL, ver bigint NOT NULL, at bigint NOT NULL, hid text NOT NULL, hsession text NOT NULL,
	since bigint NOT NULL, expires bigint NOT NULL, keep bigint NOT NULL, busy bigint NOT NULL, kept smallint NOT NULL,
	info text NOT NULL, waiting integer NOT NULL, due bigint NOT NULL, line text NOT NULL, more text NOT NULL
) WITH (fillfactor = 50)`,
		`CREATE TABLE IF NOT EXISTS hf_done (name bytea NOT NULL, id text NOT NULL, PRIMARY KEY (name, id))`,
	}}
}

// Text implements [sqllock.Dialect].
func (d *dialect) Text(statement string) string {
	statement = d.clock.Replace(statement)
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// Inline implements [sqllock.Dialect]: arguments cost nothing.
func (d *dialect) Inline(text string, args []any) (string, []any) { return text, args }

// TxOptions implements [sqllock.Dialect]: a statement sees what was committed before it.
func (d *dialect) TxOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// InsertNew implements [sqllock.Dialect].
func (d *dialect) InsertNew() (begin, end string) { return "INSERT", " ON CONFLICT DO NOTHING" }

// Fault implements [sqllock.Dialect].
func (d *dialect) Fault(err error) sqllock.Fault {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		switch code := said.Code; {
		case code == "40001", code == "40P01", code == "55P03": // serialization, deadlock, lock not available
			return sqllock.Again
		case code == "42P01", code == "42703", code == "3F000", code == "3D000": // no table, column, schema, database
			return sqllock.NoSchema
		case code == "57P01", code == "57P02", code == "57014", strings.HasPrefix(code, "08"): // shutdown, crash, cancelled, connection
			return sqllock.Unknown
		case strings.HasPrefix(code, "53"), code == "57P03": // no resources, not ready
			return sqllock.NotDone
		}
		return sqllock.Refused
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, sqldriver.ErrBadConn) || pgconn.SafeToRetry(err) {
		return sqllock.NotDone
	}
	return sqllock.Unknown
}

// Check implements [sqllock.Dialect].
func (d *dialect) Check(ctx context.Context, db *sql.DB) (c sqllock.Circumstances, err error) {
	var level string
	err = db.QueryRowContext(ctx, "SELECT current_setting('transaction_isolation')").Scan(&level)
	c.Serial = level != "read committed" && level != "read uncommitted"
	return c, err
}

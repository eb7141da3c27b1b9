package fence

import (
	"context"
	"fmt"
)

// Dialect is the kind of database of the resource.
type Dialect uint8

// The dialects.
const (
	MySQL Dialect = 1 + iota // MySQL 8 and MariaDB, with InnoDB
	PostgreSQL
	SQLite // SQLite 3.35 and later
)

func (d Dialect) known() bool { return d >= MySQL && d <= SQLite }

// Schema returns the statement that creates the table hf_fence unless it exists, or "" for an
// unknown dialect. Put it into the application's migrations. It needs the right to create tables,
// and in PostgreSQL only one at a time may run it. Begin needs SELECT, INSERT and UPDATE on the
// table.
func Schema(d Dialect) string {
	switch d {
	case MySQL:
		return mysqlSchema
	case PostgreSQL:
		return postgresSchema
	case SQLite:
		return sqliteSchema
	}
	return ""
}

// The resource is binary in all three: no collation can equate two names, or pad them. MySQL's
// statement names the engine, because one without transactions would keep a token after a rollback.
const (
	mysqlSchema = `CREATE TABLE IF NOT EXISTS hf_fence (
	resource VARBINARY(512) NOT NULL PRIMARY KEY,
	token    BIGINT         NOT NULL,
	begun    BIGINT         NOT NULL DEFAULT 0
) ENGINE=InnoDB`

	postgresSchema = `CREATE TABLE IF NOT EXISTS hf_fence (
	resource bytea  NOT NULL PRIMARY KEY,
	token    bigint NOT NULL
)`

	sqliteSchema = `CREATE TABLE IF NOT EXISTS hf_fence (
	resource BLOB    NOT NULL PRIMARY KEY,
	token    INTEGER NOT NULL
) WITHOUT ROWID`
)

// Each statement stores the larger of the stored token and the given one, keeps the row locked
// until the transaction ends, and returns the larger.
//
// MySQL returns it as the last insert ID. Affected rows would not do: they depend on
// clientFoundRows. No assignment uses a column that another one sets, so the order of assignments
// does not matter (MariaDB's SIMULTANEOUS_ASSIGNMENT). There is no VALUES(), which MySQL
// deprecates, nor its replacement, the row alias, which MariaDB does not have.
//
// MySQL does not count an update to the same value as a change. So begun counts: two transactions
// on a resource then always change the same row. Conflicts are found by that where locks do not
// reach (several writing nodes of a Galera cluster) or come late (innodb_snapshot_isolation).
const (
	mysqlUpsert = `INSERT INTO hf_fence (resource, token) VALUES (x'%x', LAST_INSERT_ID(%d))` +
		` ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, %[2]d)), begun = begun + 1`

	postgresUpsert = `INSERT INTO hf_fence AS f (resource, token) VALUES ($1, $2)` +
		` ON CONFLICT (resource) DO UPDATE SET token = GREATEST(f.token, EXCLUDED.token) RETURNING f.token`

	sqliteUpsert = `INSERT INTO hf_fence (resource, token) VALUES (?, ?)` +
		` ON CONFLICT (resource) DO UPDATE SET token = max(token, excluded.token) RETURNING token`
)

// upsert runs the statement and returns the larger token.
func upsert(ctx context.Context, tx Tx, d Dialect, resource string, token int64) (highest int64, err error) {
	if d == MySQL {
		// Without parameters, for which the driver would prepare the statement in another round
		// trip. Hex digits need no quoting in any sql_mode or character set.
		done, err := tx.ExecContext(ctx, fmt.Sprintf(mysqlUpsert, resource, token))
		if err != nil {
			return 0, err
		}
		return done.LastInsertId()
	}
	statement := postgresUpsert
	if d == SQLite {
		statement = sqliteUpsert
	}
	err = tx.QueryRowContext(ctx, statement, []byte(resource), token).Scan(&highest)
	return highest, err
}

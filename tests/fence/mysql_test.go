package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// mariadb starts a server with the tables of the tests.
func mariadb(t *testing.T, args ...string) (*testenv.MariaDBServer, *database) {
	t.Helper()
	s := testenv.MariaDB(t, args...)
	d := &database{dialect: fence.MySQL, waits: mysqlWaits}
	d.db = open(t, "mysql", s.DSN("root", ""))
	d.prepare(t)
	return s, d
}

// Not information_schema.INNODB_TRX: all readers within 0.1 s of each other see the same.
const mysqlWaits = `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'`

// The default of MariaDB from 11.6 on; 10.11 can be set to it.
const snapshotIsolation = "--loose-innodb-snapshot-isolation="

func TestMySQL(t *testing.T) {
	_, d := mariadb(t, snapshotIsolation+"OFF")
	for _, c := range []struct {
		level sql.IsolationLevel
		late  string
	}{
		{sql.LevelReadUncommitted, "fresh"},
		{sql.LevelReadCommitted, "fresh"},
		{sql.LevelRepeatableRead, "old"},
		{sql.LevelSerializable, ""}, // a read locks what it has read
	} {
		t.Run(c.level.String(), func(t *testing.T) {
			at := *d
			at.level, at.lateBegin = c.level, c.late
			suite(t, &at)
		})
	}
}

func TestMariaDBSnapshotIsolation(t *testing.T) {
	_, d := mariadb(t, snapshotIsolation+"ON")
	d.level, d.lateBegin = sql.LevelRepeatableRead, "retry"
	suite(t, d)
}

// Settings of the session and of the driver that change what statements mean or return.
func TestMySQLModes(t *testing.T) {
	s, d := mariadb(t)
	modes := []string{"", "STRICT_ALL_TABLES", "STRICT_TRANS_TABLES", "SIMULTANEOUS_ASSIGNMENT",
		"STRICT_ALL_TABLES,SIMULTANEOUS_ASSIGNMENT", "ANSI", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "TRADITIONAL",
		"NO_UNSIGNED_SUBTRACTION", "PAD_CHAR_TO_FULL_LENGTH", "EMPTY_STRING_IS_NULL", "IGNORE_SPACE", "PIPES_AS_CONCAT",
		"HIGH_NOT_PRECEDENCE", "REAL_AS_FLOAT", "NO_AUTO_VALUE_ON_ZERO", "TIME_ROUND_FRACTIONAL", "ORACLE", "MSSQL", "DB2",
		"MAXDB", "POSTGRESQL", "MYSQL323", "MYSQL40"}
	modes = append(modes, strings.Join(modes[1:], ","))
	var charset string
	must(t, d.db.QueryRow(`SELECT @@character_set_connection`).Scan(&charset))
	for _, found := range []bool{false, true} {
		for _, interpolate := range []bool{false, true} {
			for _, names := range []string{charset, "latin1", "gbk"} {
				cfg, err := mysql.ParseDSN(s.DSN("root", ""))
				must(t, err)
				cfg.ClientFoundRows, cfg.InterpolateParams = found, interpolate
				if names != charset && (found || interpolate) {
					continue
				}
				connector, err := mysql.NewConnector(cfg)
				must(t, err)
				db := sql.OpenDB(connector)
				defer func() { _ = db.Close() }()
				db.SetMaxOpenConns(1) // so that the settings stay
				usual := !found && !interpolate && names == charset
				for i, mode := range modes {
					if !usual && i > 0 && i < len(modes)-1 && !testenv.Deep() {
						continue // test each mode with the usual settings, and none and all with every other setting
					}
					t.Run(fmt.Sprintf("found=%v/interpolate=%v/%s/%d", found, interpolate, names, i), func(t *testing.T) {
						exec(t, db, `SET NAMES `+names, `SET SESSION sql_mode = '`+mode+`'`, `DELETE FROM hf_fence`)
						at := &database{dialect: fence.MySQL, db: db}
						testOrder(t, at)
						testBytes(t, at)
					})
				}
			}
		}
	}
}

// Begin is one statement and prepares nothing: one round trip with any driver's settings.
func TestMySQLOneRoundTrip(t *testing.T) {
	_, d := mariadb(t)
	ctx := testContext(t)
	tx, err := d.db.BeginTx(ctx, nil)
	must(t, err)
	count := func() (asked, prepared int) {
		var name string
		must(t, tx.QueryRow(`SHOW SESSION STATUS LIKE 'Questions'`).Scan(&name, &asked))
		must(t, tx.QueryRow(`SHOW SESSION STATUS LIKE 'Com_stmt_prepare'`).Scan(&name, &prepared))
		return asked, prepared
	}
	asked, prepared := count()
	must(t, fence.Begin(ctx, tx, fence.MySQL, "r", 1))
	askedAfter, preparedAfter := count()
	// Between the two readings of Questions there are one SHOW of the first count and this one.
	if askedAfter-asked != 3 || preparedAfter != prepared {
		t.Errorf("Begin took %d statements and prepared %d; want 1 and 0", askedAfter-asked-2, preparedAfter-prepared)
	}
	must(t, tx.Commit())
}

// noResult is a transaction through a proxy that drops the last insert ID.
type noResult struct{ *sql.Tx }

type noID struct{ sql.Result }

func (noID) LastInsertId() (int64, error) { return 0, nil }

func (m noResult) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	done, err := m.Tx.ExecContext(ctx, query, args...)
	return noID{done}, err
}

// A missing result is no success.
func testNoResult(t *testing.T, d *database) {
	ctx := testContext(t)
	tx, err := d.db.BeginTx(ctx, nil)
	must(t, err)
	isPlainError(t, fence.Begin(ctx, noResult{tx}, d.dialect, "mute", 1), "returned token 0")
	wantErr(t, tx.Commit(), sql.ErrTxDone)
}

func TestMySQLErrors(t *testing.T) {
	s, d := mariadb(t)
	number := func(n uint16) func(error) bool {
		return func(err error) bool {
			var e *mysql.MySQLError
			return errors.As(err, &e) && e.Number == n
		}
	}
	t.Run("Timeout", func(t *testing.T) {
		testTimeout(t, d, open(t, "mysql", s.DSN("root", "")+"?innodb_lock_wait_timeout=0"), number(1205))
	})
	t.Run("Deadlock", func(t *testing.T) { testDeadlock(t, d, number(1213)) })
	t.Run("Killed", func(t *testing.T) { testKilled(t, d, `SELECT CONNECTION_ID()`, `KILL QUERY ?`, "1317") })
	t.Run("ReadOnly", func(t *testing.T) { testReadOnly(t, d, "1792") })
	t.Run("NoResult", func(t *testing.T) { testNoResult(t, d) })
	t.Run("NoTable", func(t *testing.T) {
		s.Exec(`CREATE DATABASE bare`)
		bare := &database{dialect: fence.MySQL, db: open(t, "mysql", strings.Replace(s.DSN("root", ""), "/test", "/bare", 1))}
		isPlainError(t, bare.touch(testContext(t), "r", 1), "hf_fence")
	})
	t.Run("Grants", func(t *testing.T) {
		testGrants(t, d, func(name, rights string) *sql.DB {
			s.Exec(`CREATE USER `+name+`@'%' IDENTIFIED BY 'pw'`, `GRANT `+rights+` ON test.hf_fence TO `+name+`@'%'`)
			return open(t, "mysql", s.DSN(name, "pw"))
		})
	})
	t.Run("Idle", func(t *testing.T) { testIdle(t, d, `SET SESSION idle_transaction_timeout = 1`) })
	t.Run("Gone", func(t *testing.T) { testGone(t, d, s.Kill) })
}

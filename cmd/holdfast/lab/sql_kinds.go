package lab

import (
	"database/sql"
	"errors"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The stores of SQL.
const (
	MySQL    Store = "mysql" // MariaDB, too
	Postgres Store = "postgres"
	SQLite   Store = "sqlite"
)

// sqlKind is how one of them differs from the others.
type sqlKind struct {
	name string
	open func(h *sqlHost, database string) (*sql.DB, error)
	url  func(h *sqlHost, database string) string // for holdfast

	first   string // the database that exists from the start
	create  string // creates a database; empty: the client does
	before  []string
	id      string             // the session's ID at the server
	waits   string             // 0 if the session ID waits for no lock
	pause   time.Duration      // after each time that waits is asked
	held    string             // the locks that connections have
	left    string             // the microseconds until expires_at
	earlier string             // expires_at, so many microseconds earlier
	refusal func(error) string // what the server says; empty: it says nothing
}

const postgresPort = "5432" // the name of the socket has it

var postgresKind = &sqlKind{
	name: "PostgreSQL",
	open: func(h *sqlHost, database string) (*sql.DB, error) {
		return sql.Open("pgx", postgresURL(h, database)+"&default_query_exec_mode=simple_protocol")
	},
	url:     postgresURL,
	first:   "postgres",
	create:  "CREATE DATABASE",
	id:      "SELECT pg_backend_pid()",
	waits:   "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = ID AND state = 'active' AND wait_event_type = 'Lock'",
	pause:   5 * time.Millisecond,
	held:    "SELECT 'advisory locks: ' || COUNT(*) FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND datname = current_database()",
	left:    "(EXTRACT(EPOCH FROM expires_at - clock_timestamp()) * 1000000)",
	earlier: "expires_at - interval '%d microseconds'",
	refusal: postgresRefusal,
}

func postgresURL(h *sqlHost, database string) string {
	q := url.Values{"host": {h.account.Dir}, "port": {postgresPort}, "user": {"postgres"}, "sslmode": {"disable"}}
	return "postgres:///" + database + "?" + q.Encode()
}

func postgresRefusal(err error) string {
	var e interface {
		error
		SQLState() string
	}
	if !errors.As(err, &e) {
		return ""
	}
	switch e.SQLState() {
	case "23505":
		return "duplicate key"
	case "40P01":
		return "deadlock"
	case "25P03", "57P01", "57P05": // the server has ended the session
		return ""
	}
	return e.Error()
}

var mySQLKind = &sqlKind{
	name: "MariaDB",
	open: func(h *sqlHost, database string) (*sql.DB, error) {
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = "root", "unix", h.socket, database
		c.ClientFoundRows = true // as the client library of Java does
		c.Logger = &mysql.NopLogger{}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	},
	url: func(h *sqlHost, database string) string {
		return "mysql://root@/" + database + "?" + url.Values{"socket": {h.socket}}.Encode()
	},
	first:  "test",
	create: "CREATE DATABASE",
	id:     "SELECT CONNECTION_ID()",
	waits: "SELECT (SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ID AND trx_state = 'LOCK WAIT')" +
		" + (SELECT COUNT(*) FROM information_schema.processlist WHERE id = ID AND state = 'User lock')",
	pause:   150 * time.Millisecond, // innodb_trx is a copy, which is renewed if nobody reads it for 100 ms
	held:    "SELECT IF(IS_USED_LOCK('R') IS NULL, 'no connection has the lock', 'a connection has the lock')",
	left:    "TIMESTAMPDIFF(MICROSECOND, NOW(6), expires_at)",
	earlier: "expires_at - INTERVAL %d MICROSECOND",
	refusal: mySQLRefusal,
}

func mySQLRefusal(err error) string {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return ""
	}
	switch e.Number {
	case 1062:
		return "duplicate key"
	case 1213:
		return "deadlock"
	}
	return e.Message
}

var sqliteKind = &sqlKind{
	name: "SQLite",
	open: func(h *sqlHost, database string) (*sql.DB, error) {
		return sql.Open("sqlite", h.account.Path(database))
	},
	url:     func(h *sqlHost, database string) string { return "sqlite:" + h.account.Path(database+".holdfast") },
	before:  []string{"PRAGMA journal_mode = WAL"},
	left:    "((expires_at - unixepoch('subsec')) * 1000000)",
	earlier: "expires_at - %d / 1000000.0",
	refusal: sqliteRefusal,
}

func sqliteRefusal(err error) string {
	var e interface {
		error
		Code() int
	}
	if !errors.As(err, &e) {
		return ""
	}
	switch e.Code() & 0xff { // without what extends the code
	case 5:
		return "database is locked"
	case 19:
		return "duplicate key"
	}
	return e.Error()
}

package testenv_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// openMariaDB opens a pool of one connection.
func openMariaDB(t *testing.T, m *testenv.MariaDBServer, dsn string) *sql.DB {
	t.Helper()
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if m.TLS != nil {
		c.TLS = m.TLS.Client(t)
	}
	return mariaWith(t, c)
}

func mariaWith(t *testing.T, c *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// one returns the single value of a query.
func one(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var s string
	if err := db.QueryRow(query).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

// checkFrozen checks that db gets no answer before Continue, and gets one afterwards.
func checkFrozen(t *testing.T, db *sql.DB, s interface {
	Pause()
	Continue()
}) {
	t.Helper()
	one(t, db, "SELECT 1")
	s.Pause()
	answers := make(chan error, 1)
	go func() {
		var n int
		answers <- db.QueryRow("SELECT 1").Scan(&n)
	}()
	select {
	case err := <-answers:
		t.Errorf("a frozen server answers: %v", err)
		answers <- err
	case <-time.After(100 * time.Millisecond):
	}
	s.Continue()
	if err := <-answers; err != nil {
		t.Errorf("after Continue: %v", err)
	}
}

func TestMariaDB(t *testing.T) {
	m := testenv.MariaDB(t, "--default-time-zone=+05:30", "--innodb-flush-log-at-trx-commit=1")
	db := openMariaDB(t, m, m.DSN("root", ""))
	if got := one(t, db, "SELECT CONCAT(@@time_zone, ' ', @@innodb_flush_log_at_trx_commit)"); got != "+05:30 1" {
		t.Errorf("later arguments do not override: %s", got)
	}
	m.Exec("CREATE TABLE a (n INT) ENGINE=InnoDB",
		"CREATE PROCEDURE p() BEGIN INSERT INTO a VALUES (1); INSERT INTO a VALUES (2); END", "CALL p()",
		"CREATE USER u@'127.0.0.1' IDENTIFIED BY 'secret;'", "GRANT SELECT ON a TO u@'127.0.0.1'")
	u := openMariaDB(t, m, m.DSN("u", "secret;"))
	if got := one(t, u, "SELECT COUNT(*) FROM a"); got != "2" {
		t.Errorf("another user counts %s rows", got)
	}
	if _, err := u.Exec("CREATE TABLE b (n INT)"); !mariaError(err, 1142) {
		t.Errorf("a user without privileges creates a table: %v", err)
	}
	checkFrozen(t, db, m)
	p := testenv.Proxy(t, m.Addr)
	if got := one(t, openMariaDB(t, m, m.DSNAt(p.Addr, "root", "")), "SELECT DATABASE()"); got != "test" {
		t.Errorf("through a proxy: database %s", got)
	}
}

// A commit survives a kill by default, not only with the durable setting.
func TestMariaDBRestart(t *testing.T) {
	m := testenv.MariaDB(t)
	m.Exec("CREATE TABLE a (n INT) ENGINE=InnoDB")
	for _, graceful := range []bool{true, false, false} {
		db := openMariaDB(t, m, m.DSN("root", ""))
		if _, err := db.Exec("INSERT INTO a VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		before := one(t, db, "SELECT COUNT(*) FROM a")
		m.Restart(graceful)
		if after := one(t, openMariaDB(t, m, m.DSN("root", "")), "SELECT COUNT(*) FROM a"); after != before {
			t.Errorf("%s rows, and after a restart (graceful: %v) %s", before, graceful, after)
		}
	}
	m.Pause()
	m.Restart(true)
	m.Pause()
	m.Restart(false)
	m.Exec("SELECT 1 FROM a")
}

func TestMariaDBTLS(t *testing.T) {
	m := testenv.MariaDBTLS(t)
	const version = "SELECT variable_value FROM information_schema.session_status WHERE variable_name = 'Ssl_version'"
	if got := one(t, openMariaDB(t, m, m.DSN("root", "")), version); !strings.HasPrefix(got, "TLS") {
		t.Errorf("TLS: %q", got)
	}
	c, err := mysql.ParseDSN(m.DSN("root", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := mariaWith(t, c).Ping(); err == nil {
		t.Error("the server accepts a client without TLS")
	}
	c.TLS = m.TLS.Client(t)
	c.TLS.Certificates = nil
	if err := mariaWith(t, c).Ping(); !mariaError(err, 1045) {
		t.Errorf("without a certificate: %v", err)
	}
	m.Restart(false)
	m.Exec("SELECT 1")
}

func mariaError(err error, number uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == number
}

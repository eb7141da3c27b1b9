package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestHistories(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	x := &sqltest.Histories{
		Dialect: mysql.Dialect, Version: 1,
		Open:   func() *sql.DB { return pool(t, server.DSN("root", "")) },
		Serial: func() *sql.DB { return pool(t, server.DSN("root", "")+"?"+dsnParams("tx_isolation='SERIALIZABLE'")) },
		Conns:  func() int { return status(t, admin, "Threads_connected") },
		Rename: "ALTER TABLE hf_history CHANGE entry other VARBINARY(4096) NOT NULL",
		Lock: func() func() {
			conn, err := admin.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.ExecContext(t.Context(), "LOCK TABLES hf_history WRITE"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
			}
		},
	}
	x.Run(t)
}

// Users with the rights of the release before learn what is missing, and take locks.
func TestHistoriesWithoutTheRight(t *testing.T) {
	t.Parallel()
	server := maria(t)
	grant(server, "app", "hf_meta", "hf_lock", "hf_done", "hf_bell")
	for _, tables := range []string{"with", "without"} {
		if tables == "without" {
			server.Exec("DROP TABLE test.hf_history")
		}
		a := join(t, server.DSN("app", ""), time.Minute)
		_, err := a.b.History(t.Context(), "x")
		for _, err := range []error{err, a.b.AddHistory(t.Context(), "x", "text", 1)} {
			if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "bell and hf_history") ||
				!strings.Contains(err.Error(), `"holdfast init"`) {
				t.Errorf("%s the table: %v", tables, err)
			}
		}
		a.release(a.get(a.req("x")))
		by, _ := diagnose(t, a.db, mysql.Dialect(), 15*time.Second)
		f := by["mysql.history"]
		if f.Severity != driver.Slows || !strings.Contains(f.Do, "TABLE IF NOT EXISTS hf_history (") {
			t.Errorf("doctor, %s the table: %+v", tables, f)
		}
	}
}

// A read-only server refuses entries, and shows those that exist.
func TestHistoriesReadOnly(t *testing.T) {
	t.Parallel()
	server := maria(t)
	grant(server, "app", "hf_meta", "hf_lock", "hf_done", "hf_bell", "hf_history")
	b := sqllock.New(pool(t, server.DSN("app", "")), mysql.Dialect(), nil)
	defer func() { _ = b.Close() }()
	add := func(text string) error { return b.AddHistory(context.Background(), "x", text, 5) }
	if err := add("first"); err != nil {
		t.Fatal(err)
	}
	server.Exec("SET GLOBAL read_only = 1")
	err := add("second")
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("AddHistory: %v", err)
	}
	if list, err := b.History(t.Context(), "x"); err != nil || len(list) != 1 {
		t.Errorf("History: %+v, %v", list, err)
	}
	server.Exec("SET GLOBAL read_only = 0")
	if err := add("second"); err != nil {
		t.Error(err)
	}
}

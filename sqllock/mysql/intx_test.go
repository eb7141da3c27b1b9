package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
)

func TestInTx(t *testing.T) {
	rows, admin, server := lockable(t)
	if _, err := admin.Exec("CREATE TABLE orders (name VARBINARY(512) NOT NULL, KEY (name)) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
	x := &sqltest.InTx{Locked: *rows, Session: "SELECT CONNECTION_ID()", Kill: func(id int64) {
		if _, err := admin.Exec(fmt.Sprint("KILL ", id)); err != nil {
			t.Error(err)
		}
	}}
	x.All(t)
	t.Run("snapshot isolation", func(t *testing.T) { // the default of MariaDB from 11.6 on
		strict := *x
		strict.Open = func() *sql.DB { return pool(t, server.DSN("root", "")+"?innodb_snapshot_isolation=ON") }
		strict.Snapshots = map[sql.IsolationLevel]bool{sql.LevelRepeatableRead: true, sql.LevelSerializable: true}
		strict.AfterARead(t)
		strict.CommitAndRollback(t)
	})
	t.Run("time of the session", func(t *testing.T) {
		conn, err := pool(t, server.DSN("root", "")).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), "SET timestamp = 1700000000"); err != nil {
			t.Fatal(err)
		}
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := user(t, pool(t, server.DSN("root", "")), 0)
		if _, err := c.InTx(t.Context(), tx, "time"); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a session with a time of its own: %v", err)
		}
		_ = tx.Rollback()
		_ = conn.Close()
	})
}

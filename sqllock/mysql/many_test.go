package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// Batches report for themselves: only grants that could not be renewed are unknown.
func TestBatchesReportForThemselves(t *testing.T) {
	t.Parallel()
	server := maria(t)
	db := pool(t, server.DSN("root", ""))
	sqltest.BatchesReportForThemselves(t, mysql.Dialect(), db, func(name string) (end func()) {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(fmt.Sprintf("SELECT 1 FROM hf_lock WHERE name = x'%x' FOR UPDATE", name)); err != nil {
			t.Fatal(err)
		}
		return func() { _ = tx.Rollback() }
	})
}

// A client with 10,000 leases keeps them all, with the statistics of a small table.
func TestManyLeases(t *testing.T) {
	t.Parallel()
	server := maria(t, "--innodb-stats-auto-recalc=OFF")
	db := pool(t, server.DSN("root", ""))
	if _, err := db.Exec("ANALYZE TABLE hf_lock"); err != nil {
		t.Fatal(err)
	}
	sqltest.ManyLeases(t, func() *sql.DB { return pool(t, server.DSN("root", "")) }, mysql.Dialect)
}

package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	server := maria(t)
	sqltest.CancelledLeavesNothing(t, func() *sql.DB { return pool(t, server.DSN("root", "")) }, mysql.Dialect)
	sqltest.ManyCancels(t, pool(t, server.DSN("root", "")), mysql.Dialect())
}

func TestCrowdOfLocks(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	sqltest.ManyRequests(t, pool(t, server.DSN("root", "")), mysql.Dialect(), func() (n int) {
		if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

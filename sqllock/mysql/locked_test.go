package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// Rows that somebody has locked, and a connection that dies when its statement is done.
func TestRowsLockedForLong(t *testing.T) {
	t.Parallel()
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	rows := &sqltest.Locked{
		Dialect: mysql.Dialect,
		Open:    func() *sql.DB { return pool(t, server.DSN("root", "")) },
		Block:   func(name string) func() { return locked(t, admin, name) },
		Waiting: func() int { return status(t, admin, "Innodb_row_lock_current_waits") },
	}
	t.Run("crowd", rows.CrowdBehindALockedRow)
	t.Run("renewals", rows.RenewalsBesideALockedRow)
	t.Run("kept", rows.KeptBesideALockedRow)
	if testenv.Deep() { // a lease of 1.5 s does not outlast a machine that stands still
		t.Run("short leases", rows.ShortLeasesBesideALockedRow)
	}
	t.Run("released when taken", func(t *testing.T) { sqltest.ReleasedWhenTaken(t, mysql.Dialect, admin, server.DSN("root", "")) })
	t.Run("closing", rows.CloseBesideALockedRow)
	t.Run("ended unheard", func(t *testing.T) {
		sqltest.EndedUnheard(t, mysql.Dialect, admin, server.DSN("root", ""))
	})
}

package mysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// lockable is a server on which the test locks rows.
func lockable(t *testing.T) (*sqltest.Locked, *sql.DB, *testenv.MariaDBServer) {
	server := maria(t)
	admin := pool(t, server.DSN("root", ""))
	return &sqltest.Locked{
		Dialect: mysql.Dialect,
		Open:    func() *sql.DB { return pool(t, server.DSN("root", "")) },
		Block:   func(name string) func() { return locked(t, admin, name) },
		Waiting: func() int { return status(t, admin, "Innodb_row_lock_current_waits") },
	}, admin, server
}

// Leases as short as the wait for a row, or shorter, while other rows are locked.
func TestTimedLockedRow(t *testing.T) {
	rows, _, _ := lockable(t)
	t.Run("kept", func(t *testing.T) { rows.KeptWithALockedRow(t, 500*time.Millisecond, time.Second, 5*time.Second) })
	t.Run("short leases", rows.ShortLeasesWithALockedRow)
}

// Locked rows, and a connection that dies when its statement is done.
func TestRowsLockedForLong(t *testing.T) {
	t.Parallel()
	rows, admin, server := lockable(t)
	t.Run("many requests", rows.ManyRequestsForALockedRow)
	t.Run("renewals", rows.RenewalsWithALockedRow)
	t.Run("released when taken", func(t *testing.T) {
		sqltest.ReleasedWhenTaken(t, mysql.Dialect, admin, server.DSN("root", ""))
	})
	t.Run("closing", rows.CloseWithALockedRow)
	t.Run("others", rows.OthersWithLockedRows)
	t.Run("given up", rows.GivenUpWithALockedRow)
	t.Run("ended unanswered", func(t *testing.T) {
		sqltest.EndedUnanswered(t, mysql.Dialect, admin, server.DSN("root", ""))
	})
	t.Run("removed unanswered", func(t *testing.T) {
		sqltest.RemovedUnanswered(t, mysql.Dialect, admin, server.DSN("root", ""))
	})
	t.Run("limit unanswered", func(t *testing.T) {
		sqltest.LimitUnanswered(t, mysql.Dialect, admin, server.DSN("root", ""))
	})
}

package postgres_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// lockable is a server on which the test locks rows.
func lockable(t *testing.T, server *testenv.PostgresServer) (*sqltest.Locked, *sql.DB) {
	admin := pool(t, named(t, server))
	return &sqltest.Locked{
		Dialect: postgres.Dialect,
		Open:    func() *sql.DB { return pool(t, named(t, server)) },
		Block:   func(name string) func() { return blocked(t, admin, name) },
		Waiting: func() int {
			return value[int](t, admin,
				"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1", t.Name())
		},
	}, admin
}

// Leases as short as the wait for a row, or shorter, while other rows are locked.
func TestTimedLockedRow(t *testing.T) {
	rows, _ := lockable(t, database(t, lazy...))
	t.Run("kept", func(t *testing.T) { rows.KeptWithALockedRow(t, 500*time.Millisecond, time.Second, 5*time.Second) })
	t.Run("short leases", rows.ShortLeasesWithALockedRow)
	t.Run("many", rows.RenewalsWithManyLockedRows)
}

// Locked rows, and a connection that dies when its statement is done.
func testRowsLockedForLong(t *testing.T, server *testenv.PostgresServer) {
	rows, admin := lockable(t, server)
	t.Run("many requests", rows.ManyRequestsForALockedRow)
	t.Run("renewals", rows.RenewalsWithALockedRow)
	t.Run("released when taken", func(t *testing.T) {
		sqltest.ReleasedWhenTaken(t, postgres.Dialect, admin, server.DSN("postgres"))
	})
	t.Run("closing", rows.CloseWithALockedRow)
	t.Run("others", rows.OthersWithLockedRows)
	t.Run("given up", rows.GivenUpWithALockedRow)
	t.Run("ended unanswered", func(t *testing.T) {
		sqltest.EndedUnanswered(t, postgres.Dialect, admin, server.DSN("postgres"))
	})
	t.Run("removed unanswered", func(t *testing.T) {
		sqltest.RemovedUnanswered(t, postgres.Dialect, admin, server.DSN("postgres"))
	})
	t.Run("limit unanswered", func(t *testing.T) {
		sqltest.LimitUnanswered(t, postgres.Dialect, admin, server.DSN("postgres"))
	})
}

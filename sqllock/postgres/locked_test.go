package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// Rows that somebody has locked, and a connection that dies when its statement is done.
func testRowsLockedForLong(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, named(t, server))
	rows := &sqltest.Locked{
		Dialect: postgres.Dialect,
		Open:    func() *sql.DB { return pool(t, named(t, server)) },
		Block:   func(name string) func() { return blocked(t, admin, name) },
		Waiting: func() int {
			return value[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1", t.Name())
		},
	}
	t.Run("crowd", rows.CrowdBehindALockedRow)
	t.Run("renewals", rows.RenewalsBesideALockedRow)
	t.Run("kept", rows.KeptBesideALockedRow)
	if testenv.Deep() { // a lease of 1.5 s does not outlast a machine that stands still
		t.Run("short leases", rows.ShortLeasesBesideALockedRow)
	}
	t.Run("released when taken", func(t *testing.T) { sqltest.ReleasedWhenTaken(t, postgres.Dialect, admin, server.DSN("postgres")) })
	t.Run("closing", rows.CloseBesideALockedRow)
	t.Run("ended unheard", func(t *testing.T) {
		sqltest.EndedUnheard(t, postgres.Dialect, admin, server.DSN("postgres"))
	})
}

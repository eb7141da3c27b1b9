package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func TestCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	server := database(t)
	sqltest.CancelledLeavesNothing(t, func() *sql.DB { return pool(t, server.DSN("postgres")) }, postgres.Dialect)
	sqltest.ManyCancels(t, pool(t, server.DSN("postgres")), postgres.Dialect())
}

func TestCrowdOfLocks(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := pool(t, server.DSN("postgres"))
	sqltest.ManyRequests(t, pool(t, server.DSN("postgres")), postgres.Dialect(), func() int {
		return value[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
	})
}

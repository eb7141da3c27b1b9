package postgres_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	server := database(t)
	dsn := server.DSN("postgres")
	sqltest.BlocksCostNoStatement(t, postgres.Dialect, pool(t, dsn), dsn)
	sqltest.BlocksAreNew(t, postgres.Dialect, pool(t, dsn))
}

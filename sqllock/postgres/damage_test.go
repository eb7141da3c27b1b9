package postgres_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func testDamageStaysAlone(t *testing.T, server *testenv.PostgresServer) {
	sqltest.DamageStaysAlone(t, postgres.Dialect(), pool(t, server.DSN("postgres")))
	sqltest.BlocksAreDamaged(t, postgres.Dialect(), pool(t, server.DSN("postgres")))
}

func testEvictedIsMissing(t *testing.T, server *testenv.PostgresServer) {
	sqltest.EvictedIsMissing(t, postgres.Dialect(), pool(t, server.DSN("postgres")))
}

func testCountsAnyID(t *testing.T, server *testenv.PostgresServer) {
	sqltest.CountsAnyID(t, postgres.Dialect(), pool(t, server.DSN("postgres")))
}

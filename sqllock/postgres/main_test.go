package postgres_test

import (
	"database/sql"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func TestMain(m *testing.M) {
	sqltest.Helper(func(dsn string) (*sql.DB, error) { return sql.Open("pgx", dsn) }, postgres.Dialect)
	goleak.VerifyTestMain(testenv.Suite{M: m})
}

var one = testenv.Shared(func(t testing.TB) *testenv.PostgresServer { return testenv.Postgres(t) })

// postgresURL is for examples.
func postgresURL() string { return testenv.ForExample(one).DSN("postgres") }

package postgres_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Suite{M: m}) }

var one = testenv.Shared(func(t testing.TB) *testenv.PostgresServer { return testenv.Postgres(t) })

// postgresURL is for examples.
func postgresURL() string { return testenv.ForExample(one).DSN("postgres") }

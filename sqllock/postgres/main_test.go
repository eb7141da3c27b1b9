package postgres_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite runs all tests and examples, and then stops the server of the examples.
type suite struct{ *testing.M }

func (w suite) Run() int { return testenv.RunShared(w.M) }

var one = testenv.Shared(func(t testing.TB) *testenv.PostgresServer { return testenv.Postgres(t) })

// postgresURL is for examples.
func postgresURL() string { return testenv.ForExample(one).DSN("postgres") }

package mysql_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Suite{M: m}) }

var one = testenv.Shared(func(t testing.TB) *testenv.MariaDBServer { return testenv.MariaDB(t) })

// dsn is for examples.
func dsn() string { return testenv.ForExample(one).DSN("root", "") }

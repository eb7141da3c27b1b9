package mysql_test

import (
	"database/sql"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestMain(m *testing.M) {
	sqltest.Helper(func(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }, mysql.Dialect)
	goleak.VerifyTestMain(testenv.Suite{M: m})
}

var one = testenv.Shared(func(t testing.TB) *testenv.MariaDBServer { return testenv.MariaDB(t) })

// dsn is for examples.
func dsn() string { return testenv.ForExample(one).DSN("root", "") }

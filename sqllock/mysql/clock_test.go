package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestClockSteps(t *testing.T) {
	t.Parallel()
	server := maria(t)
	sqltest.ClockSteps(t, server.OwnClock(), func() *sql.DB { return pool(t, server.DSN("root", "")) }, mysql.Dialect)
}

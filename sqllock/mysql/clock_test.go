package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestClockSteps(t *testing.T) {
	if !testenv.Deep() {
		t.Skip("a server with its own clock is started in the deep run only (HOLDFAST_TEST_DEEP=1)")
	}
	server := maria(t)
	sqltest.ClockSteps(t, server.OwnClock(), func() *sql.DB { return pool(t, server.DSN("root", "")) }, mysql.Dialect)
}

package mysql_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	server := maria(t)
	dsn := server.DSN("root", "")
	sqltest.BlocksCostNoStatement(t, mysql.Dialect, pool(t, dsn), dsn)
	sqltest.BlocksAreNew(t, mysql.Dialect, pool(t, dsn))
}

package mysql_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	for what, dialect := range map[string]func() sqllock.Dialect{
		"inserts return rows": mysql.Dialect, "inserts return nothing": mysql.NotReturning,
	} {
		t.Run(what, func(t *testing.T) {
			dsn := maria(t).DSN("root", "")
			sqltest.BlocksCostNoStatement(t, dialect, pool(t, dsn), dsn)
			sqltest.BlocksAreNew(t, dialect, pool(t, dsn))
		})
	}
}

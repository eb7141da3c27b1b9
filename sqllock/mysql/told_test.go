package mysql_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// Whatever isolation the pool has, and wherever its connection breaks.
func TestTellsOnlyWhatIsWritten(t *testing.T) {
	t.Parallel()
	server := maria(t)
	for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			dsn := server.DSN("root", "")
			sqltest.TellsOnlyWhatIsWritten(t, mysql.Dialect, pool(t, dsn), dsn, "?"+dsnParams("tx_isolation='"+level+"'"), sqltest.NotSent, sqltest.Stale, sqltest.Sent)
		})
	}
}

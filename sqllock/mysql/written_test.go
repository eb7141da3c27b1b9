package mysql_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// In each isolation level, and wherever the connection breaks. Each level starts with another
// break, so that each statement is broken in all ways.
func TestTellsOnlyWhatIsWritten(t *testing.T) {
	t.Parallel()
	server := maria(t)
	for level, breaks := range map[string][]sqltest.Break{
		"READ-COMMITTED":  {sqltest.NotSent, sqltest.Stale, sqltest.Sent},
		"REPEATABLE-READ": {sqltest.Stale, sqltest.Sent, sqltest.NotSent},
		"SERIALIZABLE":    {sqltest.Sent, sqltest.NotSent, sqltest.Stale},
	} {
		t.Run(level, func(t *testing.T) {
			dsn := server.DSN("root", "")
			sqltest.TellsOnlyWhatIsWritten(t, mysql.Dialect, pool(t, dsn), dsn, "?"+dsnParams("tx_isolation='"+level+"'"),
				breaks...)
		})
	}
}

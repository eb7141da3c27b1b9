package postgres_test

import (
	"net/url"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// In each isolation level, and wherever the connection breaks.
func testTellsOnlyWhatIsWritten(t *testing.T, server *testenv.PostgresServer) {
	for level, breaks := range map[string][]sqltest.Break{
		"read committed": {sqltest.NotSent, sqltest.Sent}, "repeatable read": {sqltest.Stale},
		"serializable": {sqltest.Sent, sqltest.NotSent},
	} {
		t.Run(level, func(t *testing.T) {
			dsn := server.DSN("postgres")
			sqltest.TellsOnlyWhatIsWritten(t, postgres.Dialect, pool(t, dsn), dsn,
				"&default_transaction_isolation="+url.PathEscape(level), breaks...)
		})
	}
}

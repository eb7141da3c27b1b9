package mysql_test

import (
	"database/sql"
	"regexp"
	"testing"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
)

// forger interrupts waiters' sleeping statements, as a user with the right to interrupt others'
// connections could. Attackers can send waiters nothing else through the server. With sockets, it also
// writes to those, as any process of the same user of this host can.
func forger(db *sql.DB, sockets bool) *drivertest.Forger {
	return &drivertest.Forger{
		Believed: sockets,
		Message: func(id string, token uint64, name string) string {
			return sqllock.RingText(sqllock.Ring{ID: id, Token: token, Name: name})
		},
		Send: func(t testing.TB, session, _ string, messages ...string) {
			t.Helper()
			var places string // of some of its requests
			err := db.QueryRowContext(t.Context(),
				"SELECT CONCAT_WS(' ', hsession, line, more) FROM hf_lock WHERE CONCAT_WS(' ', hsession, line, more) LIKE ? LIMIT 1",
				"%."+session+"%").Scan(&places)
			if err != nil {
				t.Fatalf("the session is not on record: %v", err)
			}
			at := regexp.MustCompile(`([0-9a-z]+)\.` + session).FindStringSubmatch(places)
			var conn int64
			if err := db.QueryRowContext(t.Context(), "SELECT conn FROM hf_bell WHERE server = ?", at[1]).
				Scan(&conn); err != nil {
				t.Fatal(err)
			}
			if sockets {
				sqltest.Forge(t, "mysql", at[1], messages...)
			}
			for range min(len(messages), 200) { // they have no content, so more add nothing
				_, _ = db.ExecContext(t.Context(), "KILL QUERY ?", conn) // it may have a new connection
			}
		},
	}
}

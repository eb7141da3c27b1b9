package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func TestWaitersLearnWhoHolds(t *testing.T) {
	t.Parallel()
	server := database(t)
	sqltest.WaitersLearnWhoHolds(t, func() *sql.DB { return pool(t, server.DSN("postgres")) }, postgres.Dialect)
}

func TestRefusedInWords(t *testing.T) {
	t.Parallel()
	server := database(t)
	server.Exec("CREATE ROLE plain LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON hf_meta, hf_lock, hf_done TO plain",
		"GRANT SELECT ON hf_secret TO plain")
	dsn := server.DSN("plain")
	for params, words := range map[string]string{"&default_transaction_read_only=on": "connect to the primary"} {
		sqltest.RefusedInWords(t, pool(t, dsn+params), postgres.Dialect(), func() {}, words)
	}
	for _, c := range []struct{ refuse, words string }{
		{"REVOKE UPDATE ON hf_lock FROM plain", "the role needs SELECT, INSERT, UPDATE and DELETE"},
		{"ALTER TABLE hf_lock RENAME TO hf_away", "create them with Init"},
	} {
		sqltest.RefusedInWords(t, pool(t, dsn), postgres.Dialect(), func() { server.Exec(c.refuse) }, c.words)
	}
}

package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

func TestWaitersLearnWhoHolds(t *testing.T) {
	t.Parallel()
	server := maria(t)
	sqltest.WaitersLearnWhoHolds(t, func() *sql.DB { return pool(t, server.DSN("root", "")) }, mysql.Dialect)
}

func TestRefusedInWords(t *testing.T) {
	t.Parallel()
	server := maria(t)
	grant(server, "app", "hf_meta", "hf_lock", "hf_done", "hf_bell")
	for _, c := range []struct{ refuse, undo, words string }{
		{"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "connect to the primary"},
		{"REVOKE UPDATE ON test.hf_lock FROM app@'127.0.0.1'", "GRANT UPDATE ON test.hf_lock TO app@'127.0.0.1'",
			"the user needs SELECT, INSERT, UPDATE and DELETE"},
		{"RENAME TABLE test.hf_lock TO test.hf_away", "RENAME TABLE test.hf_away TO test.hf_lock", "create them with Init"},
	} {
		sqltest.RefusedInWords(t, pool(t, server.DSN("app", "")), mysql.Dialect(), func() { server.Exec(c.refuse) }, c.words)
		server.Exec(c.undo)
	}
}

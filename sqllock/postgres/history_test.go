package postgres_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func TestHistories(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := pool(t, server.DSN("postgres"))
	x := &sqltest.Histories{
		Dialect: postgres.Dialect, Version: 2,
		Open: func() *sql.DB { return pool(t, server.DSN("postgres")) },
		Serial: func() *sql.DB {
			return pool(t, server.DSN("postgres")+"&default_transaction_isolation=serializable")
		},
		Conns: func() int {
			return value[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
		},
		Rename: "ALTER TABLE hf_history RENAME COLUMN entry TO other",
		Lock: func() func() {
			tx, err := admin.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "LOCK TABLE hf_history IN ACCESS EXCLUSIVE MODE"); err != nil {
				t.Fatal(err)
			}
			return func() { _ = tx.Rollback() }
		},
	}
	x.Run(t)
}

// Roles with the rights of the release before learn what is missing, and take locks. A dashboard may
// read histories, and add nothing.
func TestHistoriesWithoutTheRight(t *testing.T) {
	t.Parallel()
	server := database(t)
	server.Exec("CREATE ROLE app LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON hf_meta, hf_lock, hf_done TO app",
		"GRANT SELECT ON hf_secret TO app",
		"CREATE ROLE looks LOGIN", "GRANT SELECT ON hf_meta, hf_lock, hf_done, hf_history TO looks")
	all := join(t, server.DSN("postgres"), time.Minute)
	if err := all.b.AddHistory(t.Context(), "x", "text", 1); err != nil {
		t.Fatal(err)
	}
	app := join(t, server.DSN("app"), time.Minute)
	_, err := app.b.History(t.Context(), "x")
	want(t, err, driver.ErrRefused, "done and hf_history", `"holdfast init"`)
	want(t, app.b.AddHistory(t.Context(), "x", "other", 1), driver.ErrRefused, "done and hf_history", `"holdfast init"`)
	app.free(app.take(app.mutex("x")))
	looks, _ := backend(t, server.DSN("looks"), nil)
	if list, err := looks.History(t.Context(), "x"); err != nil || len(list) != 1 || list[0].Text != "text" {
		t.Errorf("History of a dashboard: %+v, %v", list, err)
	}
	want(t, looks.AddHistory(t.Context(), "x", "other", 1), driver.ErrRefused, "hf_history")
}

package testenv_test

import (
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// openPostgres opens a pool of one connection.
func openPostgres(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestPostgres(t *testing.T) {
	p := testenv.Postgres(t, "fsync=on", "timezone=Asia/Tokyo")
	db := openPostgres(t, p.DSN("postgres"))
	if got := one(t, db, "SELECT current_setting('fsync') || ' ' || current_setting('timezone')"); got != "on Asia/Tokyo" {
		t.Errorf("later settings do not override: %s", got)
	}
	p.Exec("CREATE TABLE a (n int)",
		"CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO a VALUES (1); INSERT INTO a VALUES (2); END $$",
		"SELECT f()", `CREATE ROLE "u/1" LOGIN`, `GRANT SELECT ON a TO "u/1"`)
	u := openPostgres(t, p.DSN("u/1"))
	if got := one(t, u, "SELECT count(*) FROM a"); got != "2" {
		t.Errorf("another user counts %s rows", got)
	}
	if _, err := u.Exec("DROP TABLE a"); !postgresError(err, "42501") {
		t.Errorf("a user without privileges drops a table: %v", err)
	}
	checkFrozen(t, db, p)
	proxy := testenv.Proxy(t, p.Addr)
	if got := one(t, openPostgres(t, p.DSNAt(proxy.Addr, "postgres")), "SELECT current_database()"); got != "postgres" {
		t.Errorf("through a proxy: database %s", got)
	}
}

// A commit survives a kill by default, not only with the durable setting.
func TestPostgresRestart(t *testing.T) {
	p := testenv.Postgres(t)
	p.Exec("CREATE TABLE a (n int)")
	for _, graceful := range []bool{true, false, false} {
		db := openPostgres(t, p.DSN("postgres"))
		if _, err := db.Exec("INSERT INTO a VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		before := one(t, db, "SELECT count(*) FROM a")
		p.Restart(graceful)
		if after := one(t, openPostgres(t, p.DSN("postgres")), "SELECT count(*) FROM a"); after != before {
			t.Errorf("%s rows, and after a restart (graceful: %v) %s", before, graceful, after)
		}
	}
}

func TestPostgresKillBackend(t *testing.T) {
	p := testenv.Postgres(t)
	if got := p.Backends(""); len(got) != 0 {
		t.Errorf("backends %v before the first client", got)
	}
	db, other := openPostgres(t, p.DSN("postgres")), openPostgres(t, p.DSN("postgres"))
	one(t, other, "SELECT 'other'")
	var pid int
	if err := db.QueryRow("SELECT pg_backend_pid() /* mine */").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if got := p.Backends("query LIKE '%/* mine */'"); !slices.Equal(got, []int{pid}) {
		t.Fatalf("backends %v; want %d", got, pid)
	}
	if got := p.Backends(""); len(got) != 2 || got[1] != pid {
		t.Errorf("backends %v; want two, the second %d", got, pid)
	}
	p.KillBackend("query LIKE '%/* mine */'")
	p.Exec("SELECT 1")
	if got := p.Backends(""); len(got) != 0 {
		t.Errorf("backends %v after a crash", got)
	}
}

func TestPostgresTLS(t *testing.T) {
	p := testenv.PostgresTLS(t)
	db := openPostgres(t, p.DSN("postgres"))
	if got := one(t, db, "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"); got == "" {
		t.Error("no TLS")
	}
	c, err := pgx.ParseConfig(p.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"without a certificate", "without TLS"} {
		if c.TLSConfig = p.TLS.Client(t); what == "without TLS" {
			c.TLSConfig = nil
		} else {
			c.TLSConfig.Certificates = nil
		}
		conn, err := pgx.ConnectConfig(t.Context(), c)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		if !postgresError(err, "28000") { // invalid authorization
			t.Errorf("%s: %v", what, err)
		}
	}
	p.Restart(false)
	one(t, openPostgres(t, p.DSN("postgres")), "SELECT 1")
}

func postgresError(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

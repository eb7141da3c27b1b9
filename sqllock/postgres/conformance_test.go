package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

const ttl = 2 * time.Second // longer than the stalls of a busy machine

// TestConformance runs as a role that may only read and write the rows of the tables, which are in
// their own schema.
func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(t, plain(t), "plain", nil))
}

// Without sockets, pushes go through the server, as those to processes elsewhere always do.
func TestConformanceWithoutSockets(t *testing.T) {
	h := harness(t, plain(t), "plain", &sqllock.Config{NoSockets: true})
	h.Only = sqltest.Pushed
	drivertest.Run(t, h)
}

func TestTimedConformance(t *testing.T) { drivertest.RunTimed(t, harness(t, plain(t), "plain", nil)) }

// plain starts a server with that role.
func plain(t *testing.T) *testenv.PostgresServer {
	t.Helper()
	server := testenv.Postgres(t)
	server.Exec("CREATE SCHEMA locks", "REVOKE ALL ON SCHEMA public FROM PUBLIC",
		"REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
		"CREATE ROLE plain LOGIN", "GRANT USAGE ON SCHEMA locks TO plain", "ALTER ROLE plain SET search_path = locks",
		"ALTER DEFAULT PRIVILEGES IN SCHEMA locks GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO plain")
	initialise(t, server.DSN("postgres")+"&search_path=locks")
	if p := join(t, server.DSN("plain"), ttl); p.b.Polling() != "" {
		t.Errorf("polling: %s", p.b.Polling())
	}
	return server
}

// initialise creates the tables.
func initialise(t testing.TB, dsn string) {
	t.Helper()
	if err := sqllock.Init(context.Background(), pool(t, dsn), postgres.Dialect()); err != nil {
		t.Fatal(err)
	}
}

func pool(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// harness is the suite's, as user.
func harness(t *testing.T, server *testenv.PostgresServer, user string, cfg *sqllock.Config) drivertest.Harness {
	return drivertest.Harness{
		TTL:     ttl,
		Names:   testenv.Rounds(300, 10_000),
		Waiters: testenv.Rounds(driver.MaxWaiters+20, 200),
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			proxy := testenv.Proxy(t, server.Addr)
			b := sqllock.New(pool(t, server.DSNAt(proxy.Addr, user)), postgres.Dialect(), cfg)
			t.Cleanup(func() { _ = b.Close() })
			return sqltest.Conn(b, proxy)
		},
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
		Refuse: map[string]func(testing.TB) func(){"default_transaction_read_only": func(t testing.TB) func() {
			server.Exec("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
			untilReloaded(t, server, "on")
			return func() {
				server.Exec("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
				untilReloaded(t, server, "off")
			}
		}},
		Forger: forger(t, server, cfg == nil),
		Damage: damages(pool(t, server.DSN("postgres")+"&search_path=locks,public")),
	}
}

// untilReloaded waits until all sessions of the server know the value of default_transaction_read_only.
// pg_reload_conf only asks the postmaster, which reads the settings and signals all sessions. Then it
// starts new sessions, so a new one with the value shows that all others have the signal.
func untilReloaded(t testing.TB, server *testenv.PostgresServer, value string) {
	t.Helper()
	until(t, "default_transaction_read_only is "+value, func() bool {
		db, err := sql.Open("pgx", server.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var is string
		if err := db.QueryRow("SHOW default_transaction_read_only").Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is == value
	})
}

// damages are ways to damage a row.
func damages(db *sql.DB) map[string]func(testing.TB, string) {
	ways := map[string]func(testing.TB, string){}
	for what, damage := range sqltest.Damages {
		ways[what] = func(t testing.TB, name string) { sqltest.Spoil(t, db, name, damage) }
	}
	return ways
}

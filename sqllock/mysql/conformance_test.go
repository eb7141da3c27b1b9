package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

const ttl = 2 * time.Second // longer than the stalls of a busy machine

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, maria(t), "root", "")
}

// Without sockets, pushes go through the server, as those to processes elsewhere always do.
func TestConformanceWithoutSockets(t *testing.T) {
	t.Parallel()
	h := harness(t, maria(t), "root", "", &sqllock.Config{NoSockets: true})
	h.Only = sqltest.Pushed
	drivertest.Run(t, h)
}

func TestTimedConformance(t *testing.T) {
	drivertest.RunTimed(t, harness(t, maria(t), "root", "", nil))
}

// A user with rights on rows only, with all settings that can change the meaning of a statement.
// Each operation is tried; the deep run runs the whole suite.
func TestConformanceOfOthers(t *testing.T) {
	t.Parallel()
	server := maria(t, "--log-bin=log", "--binlog-format=ROW", "--default-time-zone=-03:30")
	grant(server, "app", "hf_meta", "hf_lock", "hf_done", "hf_bell", "hf_history")
	params := "?" + dsnParams("clientFoundRows=true&interpolateParams=true&charset=latin1&tx_isolation='SERIALIZABLE'"+
		"&sql_mode='SIMULTANEOUS_ASSIGNMENT,ANSI,NO_BACKSLASH_ESCAPES'")
	operations(t, server.DSN("app", "")+params)
	if testenv.Deep() {
		conform(t, server, "app", params)
	}
}

// initialise creates the tables.
func initialise(t testing.TB, dsn string) {
	t.Helper()
	db := pool(t, dsn)
	if err := sqllock.Init(context.Background(), db, mysql.Dialect()); err != nil {
		t.Fatal(err)
	}
}

func pool(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// conform runs the suite as user, with more parameters of the data source name
// ("?clientFoundRows=true").
func conform(t *testing.T, server *testenv.MariaDBServer, user, params string) {
	drivertest.Run(t, harness(t, server, user, params, nil))
}

func harness(t *testing.T, server *testenv.MariaDBServer, user, params string, cfg *sqllock.Config) drivertest.Harness {
	return drivertest.Harness{
		TTL:     ttl,
		Names:   testenv.Rounds(300, 10_000),
		Waiters: testenv.Rounds(driver.MaxWaiters+20, 200),
		Open: func(t testing.TB) drivertest.Conn {
			t.Helper()
			proxy := testenv.Proxy(t, server.Addr)
			b := sqllock.New(pool(t, server.DSNAt(proxy.Addr, user, "")+params), mysql.Dialect(), cfg)
			t.Cleanup(func() { _ = b.Close() })
			return sqltest.Conn(b, proxy)
		},
		Restart: func(t testing.TB) {
			t.Helper()
			server.Restart(true)
		},
		Refuse: refusals(server, user),
		Forger: forger(pool(t, server.DSN("root", "")), cfg == nil),
		Damage: damages(pool(t, server.DSN("root", ""))),
	}
}

// refusals are ways to make the server refuse writes. Root may write even when it is read-only.
func refusals(server *testenv.MariaDBServer, user string) map[string]func(testing.TB) func() {
	ways := map[string]func(testing.TB) func(){"a view": func(testing.TB) func() {
		server.Exec("RENAME TABLE test.hf_lock TO test.hf_away",
			"CREATE VIEW test.hf_lock AS SELECT * FROM test.hf_away GROUP BY name")
		return func() { server.Exec("DROP VIEW test.hf_lock", "RENAME TABLE test.hf_away TO test.hf_lock") }
	}}
	if user != "root" {
		ways["read_only"] = func(testing.TB) func() {
			server.Exec("SET GLOBAL read_only = 1")
			return func() { server.Exec("SET GLOBAL read_only = 0") }
		}
	}
	return ways
}

// damages are ways to damage a row.
func damages(db *sql.DB) map[string]func(testing.TB, string) {
	ways := map[string]func(testing.TB, string){}
	for what, damage := range sqltest.Damages {
		ways[what] = func(t testing.TB, name string) { sqltest.Spoil(t, db, name, damage) }
	}
	return ways
}

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// diagnose returns the findings by code, one for each, and one text of those that are not fine.
func diagnose(t testing.TB, db *sql.DB, d sqllock.Dialect, cfg *sqllock.Config) (
	by map[string]driver.Finding, unlike string) {
	t.Helper()
	b := sqllock.New(db, d, cfg)
	defer func() { _ = b.Close() }()
	list, err := b.Diagnose(t.Context(), 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	by = map[string]driver.Finding{}
	var all []string
	for _, f := range list {
		if _, twice := by[f.Code]; twice {
			t.Errorf("%s comes twice", f.Code)
		}
		if f.Found == "" || (f.Severity != driver.Fine) != (f.Why != "" && f.Do != "") {
			t.Errorf("incomplete: %+v", f)
		}
		if by[f.Code] = f; f.Severity != driver.Fine && f.Code != "postgres.latency" { // latency depends on the machine
			all = append(all, strings.TrimPrefix(f.Code, "postgres.")+" "+f.Severity.String())
		}
	}
	slices.Sort(all)
	return by, strings.Join(all, ", ")
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	server := database(t, "fsync=on")
	server.Exec("CREATE ROLE plain LOGIN", "GRANT SELECT, INSERT, UPDATE, DELETE ON hf_meta, hf_lock, hf_done TO plain",
		"GRANT SELECT ON hf_secret TO plain")
	for role, want := range map[string]string{"postgres": "", "plain": "history slows, old-rows unknown"} {
		by, unlike := diagnose(t, pool(t, server.DSN(role)), postgres.Dialect(), nil)
		if unlike != want || len(by) != 20 {
			t.Errorf("as %s, not fine: %q, of %d: %v", role, unlike, len(by), by)
		}
	}
	server.Exec("CREATE ROLE watches LOGIN", "GRANT SELECT ON hf_meta, hf_lock, hf_done TO watches")
	by, _ := diagnose(t, pool(t, server.DSN("watches")), postgres.Dialect(), nil)
	if f := by["postgres.wakeups"]; f.Severity != driver.Slows || !strings.Contains(f.Do, "GRANT SELECT ON hf_secret") {
		t.Errorf("as a role that may not read hf_secret: %+v", f)
	}
	server.Exec("DROP OWNED BY watches", "DROP ROLE watches")
	for _, c := range []struct{ params, do, undo, want, says string }{
		{"&synchronous_commit=off", "", "", "", "grants and renewals still wait for the disk"},
		{"&statement_timeout=900", "", "", "timeouts slows", "statement_timeout is 900ms"},
		{"&idle_session_timeout=12000", "", "", "timeouts slows", "idle_session_timeout is 12s, where leases last 15s"},
		{"&idle_in_transaction_session_timeout=500", "", "", "", "not closed early"}, // transactions have their own
		{"", "ALTER TABLE hf_lock SET UNLOGGED", "ALTER TABLE hf_lock SET LOGGED", "tables endangers",
			"of the tables, 1 are unlogged"},
		{"", "ALTER TABLE hf_history RENAME TO away", "ALTER TABLE away RENAME TO hf_history", "history slows",
			"CREATE TABLE IF NOT EXISTS hf_history ( name bytea NOT NULL"},
		{"", "CREATE ROLE looks LOGIN IN ROLE pg_read_all_data", "DROP ROLE looks", "secret endangers",
			"may read hf_secret: looks"},
		{"", "CREATE ROLE looks LOGIN", "", "", "owners and superusers"},
		{"", "GRANT CREATE ON SCHEMA public TO looks", "REVOKE CREATE ON SCHEMA public FROM looks", "creators endangers",
			"(schemas public): looks"},
		{"", "GRANT CREATE ON SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "creators endangers",
			"(schemas public): PUBLIC, looks"},
		// it takes locks
		{"", "GRANT CREATE ON SCHEMA public TO plain", "REVOKE CREATE ON SCHEMA public FROM plain", "",
			"owners and superusers"},
		{"", "GRANT CREATE ON DATABASE postgres TO looks", "REVOKE CREATE ON DATABASE postgres FROM looks",
			"creators endangers", "(schemas public): looks"},
		{"", "CREATE SCHEMA postgres; GRANT CREATE ON SCHEMA postgres TO looks", "DROP SCHEMA postgres", "creators endangers",
			"(schemas postgres, public): looks"},
		// our statements do not look there
		{"", "CREATE SCHEMA other; GRANT CREATE ON SCHEMA other TO looks", "", "", "owners and superusers"},
	} {
		if c.do != "" {
			server.Exec(c.do)
		}
		by, unlike := diagnose(t, pool(t, server.DSN("postgres")+c.params), postgres.Dialect(), nil)
		if unlike != c.want || !strings.Contains(fmt.Sprint(by), c.says) {
			t.Errorf("%s%s: not fine: %q, want %q, with %q: %v", c.params, c.do, unlike, c.want, c.says, by)
		}
		if c.undo != "" {
			server.Exec(c.undo)
		}
	}
	for clock, want := range map[string]driver.Severity{
		"clock_timestamp() - interval '1 minute'":                              driver.Unclear,
		"clock_timestamp() + interval '1 minute'":                              driver.Slows,
		"to_timestamp(extract(epoch FROM clock_timestamp()) * 2 - 1800000000)": driver.Endangers, // twice as fast
	} {
		d := postgres.DialectAt("(extract(epoch FROM " + clock + ") * 1000000)::bigint")
		if by, _ := diagnose(t, pool(t, server.DSN("postgres")), d, nil); by["postgres.clock"].Severity != want {
			t.Errorf("%s: %+v, want %v", clock, by["postgres.clock"], want)
		}
	}

	// Behind a pooler in transaction mode everything is found except wake-ups, which a direct
	// connection restores.
	pooler := testenv.PgBouncer(t, server, "transaction")
	behind := pool(t, pooler.DSN("postgres"))
	by, unlike := diagnose(t, behind, postgres.Dialect(), nil)
	if f := by["postgres.wakeups"]; unlike != "wakeups slows" || !strings.Contains(f.Found, "pooler") {
		t.Errorf("behind a pooler, not fine: %q, %+v", unlike, f)
	}
	if _, unlike := diagnose(t, behind, postgres.Dialect(),
		&sqllock.Config{Listen: pool(t, server.DSN("postgres"))}); unlike != "" {
		t.Errorf("behind a pooler, with a direct connection, not fine: %q", unlike)
	}
}

// Open transactions make the server keep old versions of rows; transactions without a snapshot do
// not.
func TestDoctorOldRows(t *testing.T) {
	t.Parallel()
	server := database(t, "fsync=on", "max_prepared_transactions=2")
	server.Exec("CREATE ROLE looks LOGIN", "GRANT SELECT ON hf_lock TO looks")
	db := pool(t, server.DSN("postgres"))
	look := func(db *sql.DB, want driver.Severity, says string) {
		t.Helper()
		b := sqllock.New(db, postgres.Dialect(), nil)
		defer func() { _ = b.Close() }()
		list, err := b.Diagnose(limited(t), 100*time.Millisecond)
		for _, f := range list {
			if f.Code == "postgres.old-rows" && (f.Severity != want || !strings.Contains(f.Found, says)) {
				t.Errorf("%+v, want %v with %q", f, want, says)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	look(db, driver.Fine, "")
	for isolation, want := range map[string]driver.Severity{"READ COMMITTED": driver.Fine,
		"REPEATABLE READ": driver.Slows} {
		c, err := pgconn.Connect(t.Context(), server.DSN("looks"))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"BEGIN ISOLATION LEVEL " + isolation, "SELECT name FROM hf_lock",
			"SELECT pg_sleep(0.2)"} {
			if _, err := c.Exec(t.Context(), text).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		says := ""
		if want == driver.Slows {
			says = "of looks (idle in transaction)"
		}
		look(db, want, says)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "the server has ended the transaction", func() bool {
			return value[int64](t, db, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'looks'") == 0
		})
		look(db, driver.Fine, "")
	}
	run(t, db, "BEGIN; CREATE TABLE other (x int); PREPARE TRANSACTION 'left \x1b[31mopen'", "SELECT pg_sleep(0.2)")
	look(db, driver.Slows, `the prepared transaction left \x1b[31mopen of postgres`)
	run(t, db, "ROLLBACK PREPARED 'left \x1b[31mopen'")
	look(db, driver.Fine, "")
}

func TestDoctorDangers(t *testing.T) {
	t.Parallel()
	server := database(t, "full_page_writes=off", "autovacuum=off", "max_connections=14",
		"superuser_reserved_connections=3")
	for range 2 { // so that few are left
		if err := pool(t, server.DSN("postgres")).Ping(); err != nil {
			t.Fatal(err)
		}
	}
	const own = "autovacuum slows, connections slows, durability endangers, full-page-writes endangers"
	db := pool(t, server.DSN("postgres"))
	if by, unlike := diagnose(t, db, postgres.Dialect(), nil); unlike != own {
		t.Errorf("not fine: %q, want %q: %v", unlike, own, by)
	}
	// A client that receives the log, as a standby does.
	standby, err := pgconn.Connect(t.Context(), server.DSN("postgres")+"&replication=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = standby.Close(t.Context()) }()
	if _, unlike := diagnose(t, db, postgres.Dialect(), nil); unlike != own+", replicas endangers" {
		t.Errorf("with a standby, not fine: %q", unlike)
	}
	run(t, db, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (s1)'",
		"ALTER ROLE postgres SET synchronous_commit = 'local'", "SELECT pg_reload_conf()")
	until(t, "the setting is in force", func() bool {
		return value[string](t, db, "SELECT current_setting('synchronous_standby_names')") != ""
	})
	local := pool(t, server.DSN("postgres"))
	by, unlike := diagnose(t, local, postgres.Dialect(), nil)
	if f := by["postgres.replicas"]; unlike != own+", replicas endangers" ||
		!strings.Contains(f.Found, "synchronous_commit is local") {
		t.Errorf("with a standby that is not waited for, not fine: %q, %+v", unlike, f)
	}
}

// A condition that prevents all locking is an error, returned after the earlier findings.
func TestDoctorErrors(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	ask := func(dsn string) ([]driver.Finding, error) {
		b := sqllock.New(pool(t, dsn), postgres.Dialect(), nil)
		defer func() { _ = b.Close() }()
		return b.Diagnose(limited(t), 15*time.Second)
	}
	list, err := ask(server.DSN("postgres"))
	found := slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "postgres.durability" && f.Severity == driver.Endangers
	})
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), "holdfast init") || !found {
		t.Errorf("without tables: %v, %v", list, err)
	}
	if _, err := ask(server.DSN("nobody")); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("an unknown role: %v, want ErrRefused", err)
	}
	initialise(t, server.DSN("postgres"))
	list, err = ask(server.DSN("postgres") + "&default_transaction_read_only=on")
	if err != nil || !slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "postgres.read-only" && f.Severity == driver.Slows
	}) {
		t.Errorf("read-only: %v, %v", list, err)
	}
	server.Kill()
	if _, err := ask(server.DSN("postgres")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a server that is gone: %v, want ErrUnavailable", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	b := sqllock.New(pool(t, server.DSN("postgres")), postgres.Dialect(), nil)
	defer func() { _ = b.Close() }()
	if _, err := b.Diagnose(over, time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("an ended context: %v, want ErrUnavailable", err)
	}
}

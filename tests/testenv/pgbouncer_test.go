package testenv_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestPgBouncer(t *testing.T) {
	p := testenv.Postgres(t)
	p.Exec("CREATE TABLE a (n int)", "CREATE ROLE u LOGIN", "GRANT ALL ON a TO u")
	b := testenv.PgBouncer(t, p, "transaction", "default_pool_size=1")
	// Two clients of one pool share the one connection that it has.
	first, second := openPostgres(t, b.DSN("u")+simple), openPostgres(t, b.DSN("u")+simple)
	for range 3 {
		if x, y := one(t, first, "SELECT pg_backend_pid()"), one(t, second, "SELECT pg_backend_pid()"); x != y {
			t.Errorf("connections of backends %s and %s", x, y)
		}
	}
	if _, err := first.Exec("INSERT INTO a VALUES (1)"); err != nil {
		t.Error(err)
	}
	checkFrozen(t, second, b)
	for _, graceful := range []bool{true, false} {
		b.Restart(graceful)
		if got := one(t, openPostgres(t, b.DSN("postgres")+simple), "SELECT count(*) FROM a"); got != "1" {
			t.Errorf("%s rows after a restart (graceful: %v)", got, graceful)
		}
	}
}

func TestPgBouncerSession(t *testing.T) {
	p := testenv.PostgresTLS(t)
	b := testenv.PgBouncer(t, p, "session")
	first, second := openPostgres(t, b.DSN("postgres")+simple), openPostgres(t, b.DSN("postgres")+simple)
	if x, y := one(t, first, "SELECT pg_backend_pid()"), one(t, second, "SELECT pg_backend_pid()"); x == y {
		t.Error("two sessions on one connection")
	}
	// The pooler runs while its server does not.
	p.Kill()
	b.Restart(true)
	p.Start()
	one(t, openPostgres(t, b.DSN("postgres")+simple), "SELECT 1")
}

// simple makes pgx work without prepared statements. A pooler of this version does not carry them
// from one connection to the next.
const simple = "&default_query_exec_mode=simple_protocol"

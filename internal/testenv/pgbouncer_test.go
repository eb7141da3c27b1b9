package testenv

import "testing"

func TestPgBouncer(t *testing.T) {
	p := Postgres(t)
	p.Exec("CREATE TABLE a (n int)", "CREATE ROLE u LOGIN", "GRANT ALL ON a TO u")
	b := PgBouncer(t, p, "transaction", "default_pool_size=1")
	// Two clients of one pool take turns on the one connection that it has.
	first, second := postgres(t, b.DSN("u")+simple), postgres(t, b.DSN("u")+simple)
	for range 3 {
		if x, y := one(t, first, "SELECT pg_backend_pid()"), one(t, second, "SELECT pg_backend_pid()"); x != y {
			t.Errorf("connections of backends %s and %s", x, y)
		}
	}
	if _, err := first.Exec("INSERT INTO a VALUES (1)"); err != nil {
		t.Error(err)
	}
	frozen(t, second, b)
	for _, graceful := range []bool{true, false} {
		b.Restart(graceful)
		if got := one(t, postgres(t, b.DSN("postgres")+simple), "SELECT count(*) FROM a"); got != "1" {
			t.Errorf("%s rows after a restart (graceful: %v)", got, graceful)
		}
	}
}

func TestPgBouncerSession(t *testing.T) {
	p := PostgresTLS(t)
	b := PgBouncer(t, p, "session")
	first, second := postgres(t, b.DSN("postgres")+simple), postgres(t, b.DSN("postgres")+simple)
	if x, y := one(t, first, "SELECT pg_backend_pid()"), one(t, second, "SELECT pg_backend_pid()"); x == y {
		t.Error("two sessions on one connection")
	}
	// A pooler that serves while its server does not.
	p.Kill()
	b.Restart(true)
	p.Start()
	one(t, postgres(t, b.DSN("postgres")+simple), "SELECT 1")
}

// simple is a pgx client's way to do without prepared statements, which a pooler of this
// age does not carry from one connection to the next.
const simple = "&default_query_exec_mode=simple_protocol"

package fence_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

const postgresWaits = `SELECT 'waiting', COUNT(*) FROM pg_locks WHERE NOT granted`

// postgres starts a server with the tables of the tests.
func postgres(t *testing.T, settings ...string) (*testenv.PostgresServer, *database) {
	t.Helper()
	s := testenv.Postgres(t, settings...)
	d := &database{dialect: fence.PostgreSQL, waits: postgresWaits}
	d.db = open(t, "pgx", s.DSN("postgres"))
	d.prepare(t)
	return s, d
}

func TestPostgreSQL(t *testing.T) {
	s, d := postgres(t)
	for _, c := range []struct {
		level sql.IsolationLevel
		late  string
	}{
		{sql.LevelReadCommitted, "fresh"},
		{sql.LevelRepeatableRead, "retry"},
		{sql.LevelSerializable, "retry"},
	} {
		t.Run(c.level.String(), func(t *testing.T) {
			at := *d
			at.level, at.lateBegin = c.level, c.late
			suite(t, &at)
		})
	}
	// How the driver sends parameters: as text in the statement, and without a named statement.
	for _, mode := range []string{"simple_protocol", "exec", "describe_exec", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			exec(t, d.db, `DELETE FROM hf_fence`)
			at := *d
			at.db = open(t, "pgx", s.DSN("postgres")+"&default_query_exec_mode="+mode)
			testOrder(t, &at)
			testBytes(t, &at)
		})
	}
}

// A pooler that gives each transaction another session changes nothing.
func TestPgBouncer(t *testing.T) {
	s, d := postgres(t)
	b := testenv.PgBouncer(t, s, "transaction")
	d.db = open(t, "pgx", b.DSN("postgres")+"&default_query_exec_mode=exec")
	suite(t, d)
}

func TestPostgreSQLErrors(t *testing.T) {
	s, d := postgres(t, "deadlock_timeout=10ms")
	state := func(code string) func(error) bool {
		return func(err error) bool {
			var e *pgconn.PgError
			return errors.As(err, &e) && e.Code == code
		}
	}
	t.Run("Timeout", func(t *testing.T) {
		testTimeout(t, d, open(t, "pgx", s.DSN("postgres")+"&lock_timeout=1"), state("55P03"))
	})
	t.Run("Deadlock", func(t *testing.T) { testDeadlock(t, d, state("40P01")) })
	t.Run("Serialization", func(t *testing.T) {
		ctx := testContext(t)
		tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		must(t, err)
		_, err = tx.Exec(`SELECT 1 FROM hf_fence`)
		must(t, err)
		must(t, d.touch(ctx, "serialization", 1))
		err = fence.Begin(ctx, tx, fence.PostgreSQL, "serialization", 2)
		wantErr(t, err, fence.ErrRetry)
		if !state("40001")(err) {
			t.Errorf("%v does not wrap the server's error", err)
		}
	})
	t.Run("Killed", func(t *testing.T) {
		testKilled(t, d, `SELECT pg_backend_pid()`, `SELECT pg_cancel_backend(?)`, "57014")
	})
	t.Run("ReadOnly", func(t *testing.T) { testReadOnly(t, d, "25006") })
	t.Run("NoTable", func(t *testing.T) {
		bare := &database{dialect: fence.PostgreSQL, db: open(t, "pgx", s.DSN("postgres")+"&search_path=elsewhere")}
		isPlainError(t, bare.touch(testContext(t), "r", 1), "hf_fence")
	})
	t.Run("Grants", func(t *testing.T) {
		testGrants(t, d, func(name, rights string) *sql.DB {
			s.Exec(`CREATE ROLE `+name+` LOGIN`, `GRANT `+rights+` ON hf_fence TO `+name)
			return open(t, "pgx", s.DSN(name))
		})
	})
	t.Run("Idle", func(t *testing.T) { testIdle(t, d, `SET idle_in_transaction_session_timeout = 1`) })
	t.Run("Gone", func(t *testing.T) { testGone(t, d, s.Kill) })
}

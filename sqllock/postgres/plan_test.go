package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// Whatever the server's statistics of the table, a renewal finds its rows by key.
func TestRenewalUsesTheKey(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t, "autovacuum=off")
	dsn := server.DSN("postgres")
	initialise(t, dsn)
	admin := pool(t, dsn)
	p := join(t, dsn, time.Minute)
	var holds []driver.Hold
	take := func(n int) {
		for range n {
			holds = append(holds, p.take(p.mutex(fmt.Sprint("key/", len(holds)))))
		}
	}
	renew := func(what string) {
		t.Helper()
		before := value[int64](t, admin, "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'hf_lock'")
		if changes, err := p.Renew(limited(t), holds); err != nil || len(changes) > 0 {
			t.Fatalf("%s: %d changes, %v", what, len(changes), err)
		}
		until(t, "statistics", func() bool { // they come late
			run(t, admin, "SELECT pg_stat_force_next_flush()")
			return value[int64](t, admin, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'hf_lock'") >= int64(
				len(holds))
		})
		if n := value[int64](t, admin, "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'hf_lock'") - before; n > 0 {
			t.Errorf("%s: the renewal read %d rows sequentially", what, n)
		}
	}
	take(2)
	run(t, admin, "VACUUM ANALYZE hf_lock")
	for range 7 { // enough for prepared statements to get their plan
		if changes, err := p.Renew(limited(t), holds); err != nil || len(changes) > 0 {
			t.Fatalf("%d changes, %v", len(changes), err)
		}
	}
	take(600)
	renew("statistics of a small table")
	run(t, admin, "ANALYZE hf_lock")
	renew("current statistics")
	run(t, admin, "UPDATE pg_class SET reltuples = 0, relpages = 1 WHERE relname = 'hf_lock'")
	renew("statistics of an empty table")
}

// Batches report for themselves: only grants that could not be renewed are unknown, and the next
// attempt begins with those.
func testBatchesReportForThemselves(t *testing.T, server *testenv.PostgresServer) {
	dsn := server.DSN("postgres")
	sqltest.BatchesReportForThemselves(t, postgres.Dialect(), pool(t, dsn),
		func(name string) (end func()) { return blocked(t, pool(t, dsn), name) })
}

// A client with 10,000 leases keeps them all, with the statistics of a small table.
func TestManyLeases(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t, "autovacuum=off")
	initialise(t, server.DSN("postgres"))
	run(t, pool(t, server.DSN("postgres")), "VACUUM ANALYZE hf_lock")
	sqltest.ManyLeases(t, func() *sql.DB { return pool(t, server.DSN("postgres")) }, postgres.Dialect)
}

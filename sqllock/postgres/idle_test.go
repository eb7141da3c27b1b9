package postgres_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// joinIdleAfter joins as a process that keeps listening for idle without waiters.
func joinIdleAfter(t *testing.T, dsn string, idle time.Duration) *party {
	t.Helper()
	db := pool(t, dsn)
	b := sqllock.New(db, postgres.IdleAfter(idle), &sqllock.Config{NoSockets: true})
	t.Cleanup(func() { _ = b.Close() })
	return session(t, b, db, time.Hour)
}

// A process without waiters does not listen, since every hand-over in the database wakes all
// listeners.
func testRest(t *testing.T, server *testenv.PostgresServer) {
	a := join(t, named(t, server), time.Hour)
	b := joinIdleAfter(t, named(t, server)+"%2Fb", 10*time.Millisecond)
	said := func(word string) func() bool {
		return func() bool {
			return value[int](t, b.db,
				"SELECT count(*) FROM pg_stat_activity WHERE application_name = current_setting('application_name')"+
					" AND (query LIKE $1 || ' hf\\_%' OR $1 = 'LISTEN' AND "+checking+") AND state = 'idle'", word) == 1
		}
	}
	until(t, "it does not listen", said("UNLISTEN"))
	held := a.take(a.mutex("rest"))
	r := b.mutex("rest")
	wake := b.queue(r)
	until(t, "it listens", said("LISTEN"))
	a.free(held)
	b.free(b.woken(r, wake))
	until(t, "it no longer listens", said("UNLISTEN"))
}

// No notification is lost when a process stops or starts listening. Nobody renews or asks again,
// and leases last for an hour.
func testRestAndWait(t *testing.T, server *testenv.PostgresServer) {
	const idle = time.Millisecond
	a, b := joinIdleAfter(t, named(t, server), idle), joinIdleAfter(t, named(t, server), idle)
	for range testenv.Rounds(60, 300) {
		held := a.take(a.mutex("rest and wait"))
		time.Sleep(rand.N(4 * idle)) // so that it happens at any moment
		r := b.mutex("rest and wait")
		wake := b.queue(r)
		time.Sleep(rand.N(2 * idle))
		a.free(held)
		b.free(b.woken(r, wake))
	}
}

package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// A pooler in transaction mode lends a connection for each transaction. No notifications arrive,
// and statements prepared on one connection are executed on another.
func TestPoolerOfTransactions(t *testing.T) {
	t.Parallel()
	server := database(t)
	pooler := testenv.PgBouncer(t, server, "transaction", "default_pool_size=6")
	dsn := pooler.DSN("postgres")

	// Opening takes no longer than a caller with little time has.
	short, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, db := backend(t, dsn, nil)
	if c, err := holdfast.New(short, b, nil); err != nil {
		t.Fatal(err)
	} else {
		defer func() { _ = c.Close(limited(t)) }()
	}
	if why := b.Polling(); !strings.Contains(why, "pooler") || !strings.Contains(why, "Listen") {
		t.Errorf("polling: %q", why)
	}
	nobodyListens(t, dsn)

	// Waiters are still served, and soon: no renewal happens here, and the leases last for an hour.
	a, w := session(t, b, db, time.Hour), join(t, dsn, time.Hour)
	for range 5 {
		held := a.take(a.mutex("x"))
		r := w.mutex("x")
		wake := w.queue(r)
		a.free(held)
		w.free(w.woken(r, wake))
	}
	contend(t, []*holdfast.Client{client(t, dsn, 5*time.Second), client(t, dsn, 5*time.Second)}, "contended")

	// With a direct connection for the listener, everything works as without a pooler.
	l, ldb := backend(t, dsn, &sqllock.Config{Listen: pool(t, server.DSN("postgres"))})
	p := session(t, l, ldb, time.Hour)
	if why := l.Polling(); why != "" {
		t.Errorf("with a direct way, polling: %q", why)
	}
	held := a.take(a.mutex("z"))
	r := p.mutex("z")
	wake := p.queue(r)
	a.free(held)
	p.free(p.woken(r, wake))
}

// nobodyListens checks every connection that the pooler has to the server.
func nobodyListens(t *testing.T, dsn string) {
	t.Helper()
	db := pool(t, dsn+"&default_query_exec_mode=exec")
	var open []*sql.Tx
	pids := map[int]bool{}
	for range 6 {
		tx, err := db.BeginTx(limited(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, tx)
		var pid, channels int
		if err := tx.QueryRow("SELECT pg_backend_pid(), (SELECT count(*) FROM pg_listening_channels())").
			Scan(&pid, &channels); err != nil {
			t.Fatal(err)
		}
		if pids[pid] = true; channels != 0 {
			t.Errorf("a connection of the pooler listens on %d channels", channels)
		}
	}
	for _, tx := range open {
		_ = tx.Rollback()
	}
	if len(pids) != 6 {
		t.Errorf("%d connections were checked; want all 6", len(pids))
	}
}

// A pooler in session mode is no different from none.
func TestPoolerOfSessions(t *testing.T) {
	t.Parallel()
	server := database(t)
	pooler := testenv.PgBouncer(t, server, "session", "default_pool_size=30")
	dsn := pooler.DSN("postgres")
	a, b := join(t, dsn, time.Hour), join(t, dsn, time.Hour)
	if why := a.b.Polling(); why != "" {
		t.Errorf("polling: %q", why)
	}
	for range 5 {
		held := a.take(a.mutex("x"))
		r := b.mutex("x")
		wake := b.queue(r)
		a.free(held)
		b.free(b.woken(r, wake))
	}
	contend(t, []*holdfast.Client{client(t, dsn, 5*time.Second), client(t, dsn, 5*time.Second)}, "contended")
	// Connections that listened are not lent to others.
	for _, p := range []*party{a, b} {
		if err := p.b.Close(); err != nil {
			t.Error(err)
		}
	}
}

package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Behind a pooler, too, no statement waits for a row for more than a second: neither a renewal with
// a locked row, nor a request for a name whose row another transaction has inserted and not
// committed.
func TestLockedRowBehindAPooler(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := pool(t, server.DSN("postgres"))
	p := join(t, testenv.PgBouncer(t, server, "transaction", "default_pool_size=6").DSN("postgres"), time.Hour)
	h := p.take(p.mutex("x"))
	defer blocked(t, admin, "x")()
	tx, err := admin.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	const same = "kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more"
	if _, err := tx.Exec("INSERT INTO hf_lock (name, " + same + ") SELECT 'made', " + same +
		" FROM hf_lock WHERE name = 'x'"); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(ctx context.Context){
		"Renew":          func(ctx context.Context) { _, _ = p.Renew(ctx, []driver.Hold{h}) },
		"Acquire":        func(ctx context.Context) { _, _ = p.Acquire(ctx, p.mutex("made")) },
		"Acquire, share": func(ctx context.Context) { _, _ = p.Acquire(ctx, p.shared("made")) },
	} {
		if d := longestWait(admin, t, do); d > tooLong {
			t.Errorf("%s: a statement waited for the row for %v s", what, d)
		} else if d == 0 {
			t.Errorf("%s: no statement waited for the row", what)
		}
	}
}

// tooLong is, in seconds, what a statement never waits: a server may be slow to end the wait of one second.
const tooLong = 10

// longestWait returns how long the first statement of do waited for a lock of the server, in seconds. It watches
// until that is given up, or has waited for too long.
func longestWait(admin *sql.DB, t *testing.T, do func(ctx context.Context)) (longest float64) {
	t.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*tooLong*time.Second) // its end would end the statement
	defer cancel()
	go func() {
		defer close(done)
		do(ctx)
	}()
	for ended := false; ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-done:
			ended = true
		default:
		}
		now := value[float64](t, admin,
			"SELECT coalesce(max(extract(epoch FROM now() - query_start)), 0)::float8 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
		if ended || now < longest || now > tooLong {
			cancel()
			<-done
			return max(longest, now)
		}
		longest = now
	}
}

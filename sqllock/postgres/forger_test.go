package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
)

// forger notifies as a role that may read the locks, but not the secret of wake-ups. With sockets, it
// also writes to those, as any process of the same user of this host can.
func forger(t *testing.T, server *testenv.PostgresServer, sockets bool) *drivertest.Forger {
	server.Exec("CREATE ROLE stranger LOGIN", "GRANT USAGE ON SCHEMA locks TO stranger",
		"ALTER ROLE stranger SET search_path = locks",
		"GRANT SELECT ON locks.hf_lock TO stranger")
	connect := func(t testing.TB) *pgx.Conn {
		t.Helper()
		c, err := pgx.Connect(limited(t), server.DSN("stranger"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	// channel is where the session listens; a grant or place of it is on record.
	channel := func(t testing.TB, c *pgx.Conn, session string) (name string) {
		t.Helper()
		err := c.QueryRow(limited(t), `SELECT 'hf_' || substring(concat_ws(' ', hsession, line, more) FROM '([0-9a-z]+)\.' || $1) FROM hf_lock
			WHERE concat_ws(' ', hsession, line, more) LIKE '%.' || $1 || '%' LIMIT 1`, session).Scan(&name)
		if err != nil {
			t.Fatalf("drivertest: the session is not on record: %v", err)
		}
		return name
	}
	f := &drivertest.Forger{
		Message: func(id string, token uint64, name string) string { return fmt.Sprintf("%s %d %x", id, token, name) },
		Send: func(t testing.TB, session, _ string, messages ...string) {
			t.Helper()
			c := connect(t)
			if sockets {
				sqltest.Forge(t, "postgres", strings.TrimPrefix(channel(t, c, session), "hf_"), messages...)
			}
			to, taken := channel(t, c, session), messages[:0:0]
			for _, m := range messages {
				if m = strings.ToValidUTF8(strings.ReplaceAll(m, "\x00", ""), ""); len(m) < 8000 { // the server refuses others
					taken = append(taken, m)
				}
			}
			if _, err := c.Exec(limited(t), "SELECT pg_notify($1, m) FROM unnest($2::text[]) AS m", to, taken); err != nil {
				t.Fatal(err)
			}
		},
		Hear: func(t testing.TB, session, _ string) func() []string {
			t.Helper()
			c := connect(t)
			if _, err := c.Exec(limited(t), "LISTEN "+channel(t, c, session)); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var received []string
			ctx, stop := context.WithCancel(context.Background())
			over := make(chan struct{})
			go func() {
				defer close(over)
				for {
					n, err := c.WaitForNotification(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					received = append(received, n.Payload)
					mu.Unlock()
				}
			}()
			t.Cleanup(func() { stop(); <-over })
			return func() []string {
				mu.Lock()
				defer mu.Unlock()
				return received
			}
		},
	}
	if sockets { // no notification that strangers receive is sent
		f.Hear = nil
	}
	return f
}

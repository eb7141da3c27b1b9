//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock/internal/samehost"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

func TestSockets(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := pool(t, server.DSN("postgres"))
	x := &sqltest.Sockets{
		Dialect: postgres.Dialect,
		DSN:     server.DSN("postgres"),
		Handing: "WITH ended AS",
		Open:    func() *sql.DB { return pool(t, server.DSN("postgres")) },
		Wakes: func(t *testing.T, id string) func() int {
			c, err := pgx.Connect(limited(t), server.DSN("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			if _, err := c.Exec(limited(t), "LISTEN hf_"+id); err != nil {
				t.Fatal(err)
			}
			return func() (n int) { // all before the mark
				run(t, admin, "SELECT pg_notify('hf_"+id+"', 'mark')")
				for ; ; n++ {
					if said, err := c.WaitForNotification(limited(t)); err != nil || said.Payload == "mark" {
						if err != nil {
							t.Error(err)
						}
						return n
					}
				}
			}
		},
	}
	t.Run("ways", x.Run)
	t.Run("a new secret", func(t *testing.T) { testNewSecret(t, server) })
	t.Run("processes", func(t *testing.T) { x.Processes(t, server.DSN("postgres")) })
}

// A process to which nobody sends notices that the secret is another: otherwise those to which it
// sends would believe nothing of it.
func testNewSecret(t *testing.T, server *testenv.PostgresServer) {
	a, b := join(t, server.DSN("postgres"), time.Hour), join(t, server.DSN("postgres"), time.Hour)
	held := b.take(b.mutex("new secret"))
	a.queue(a.mutex("new secret")) // so it listens
	run(t, b.db, "UPDATE hf_secret SET secret = sha256(secret)")
	heard := make(chan string, 1)
	s := samehost.New(samehost.Dir(), "postgres", "receiver", func(msg []byte) { heard <- string(msg) },
		func() bool { return false })
	defer func() { _ = s.Close() }()
	s.Listen()
	until(t, "it sends with the new secret", func() bool {
		time.Sleep(50 * time.Millisecond) // it looks every few seconds
		if !hook.SQLTell(a.b, "receiver", "n", "x-1", 1) {
			t.Fatal("not sent")
		}
		said, seal, _ := strings.Cut(strings.TrimSuffix(<-heard, "\n"), " 6e ")
		return seal == value[string](t, b.db, "SELECT left(encode(sha256(secret || convert_to($1, 'UTF8')), 'hex'), 32)"+
			" FROM hf_secret", "hf_receiver "+said+" 6e")
	})
	b.free(held)
}

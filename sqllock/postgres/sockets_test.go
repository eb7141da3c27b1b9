//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

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
	t.Run("processes", func(t *testing.T) { x.Processes(t, server.DSN("postgres")) })
}

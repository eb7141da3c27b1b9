//go:build unix

package mysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/internal/sqltest"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// sockets counts the KILL QUERY of a server that no other test uses.
func sockets(t *testing.T, server *testenv.MariaDBServer, d func() sqllock.Dialect, handing string) *sqltest.Sockets {
	admin := pool(t, server.DSN("root", ""))
	return &sqltest.Sockets{
		Dialect: d,
		DSN:     server.DSN("root", ""),
		Handing: handing,
		Open:    func() *sql.DB { return pool(t, server.DSN("root", "")) },
		Wakes: func(t *testing.T, _ string) func() int {
			before := status(t, admin, "Com_kill")
			return func() int { return status(t, admin, "Com_kill") - before }
		},
	}
}

func TestSockets(t *testing.T) {
	t.Parallel()
	server := maria(t)
	t.Run("MariaDB", sockets(t, server, mysql.Dialect, "FOR UPDATE").Run)
	t.Run("without RETURNING", sockets(t, server, mysql.NotReturning, "LAST_INSERT_ID(4294967296").Run)
	t.Run("processes", func(t *testing.T) {
		sockets(t, server, mysql.Dialect, "").Processes(t, server.DSN("root", ""))
	})
}

// TestOlderServer: a server that does not know the statement that hands over and returns the next holder
// gets the one that returns nothing, from then on.
func TestOlderServer(t *testing.T) {
	server := maria(t)
	var clients []*client
	for range 2 {
		d, found := mysql.Edited(mysql.Now, "RETURNING token, hid, hsession", "AND RETURN token")
		if !found {
			t.Fatal("no statement returns the next holder")
		}
		clients = append(clients, joinOn(t, pool(t, server.DSN("root", "")), d, time.Minute))
	}
	turns(t, "older", 10, clients...)
}

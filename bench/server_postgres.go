package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	holdfastpostgres "github.com/holdfast-lock/holdfast/sqllock/postgres"
)

var postgreSQL = &sqlKind{
	store: "postgres", what: "PostgreSQL", account: "postgres", needs: "postgresql", dialect: holdfastpostgres.Dialect(),
	programs: []string{"initdb", "postgres"},
	quit:     syscall.SIGINT, // does not wait for clients
	install: func(data string) []string {
		return []string{"--pgdata=" + data, "--auth=trust", "--username=postgres", "--no-instructions", "--encoding=UTF8",
			"--locale=C"}
	},
	serve: func(dir, data string, port int) []string {
		args := []string{"-D", data}
		for _, setting := range []string{
			"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=" + dir,
			// The defaults: a commit is on the disk before its answer.
			"fsync=on", "synchronous_commit=on",
			"max_connections=" + strconv.Itoa(maxConnections), "shared_preload_libraries=pg_stat_statements",
		} {
			args = append(args, "-c", setting)
		}
		return args
	},
	pool: func(addr string, w *wire, _ bool) *sql.DB {
		c, err := pgx.ParseConfig(postgresURL(addr))
		if err != nil {
			panic(err) // the configuration is constant
		}
		c.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, &net.Dialer{}, addr, new(postgresParser))
		}
		return stdlib.OpenDB(*c)
	},
	setUp:   []string{"CREATE EXTENSION pg_stat_statements"},
	version: "SELECT current_setting('server_version')",
	// Statements of clients, without those run by other statements; preparing a statement is not
	// counted.
	count:  "SELECT COALESCE(SUM(calls), 0)::bigint FROM pg_stat_statements",
	others: "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
}

func postgresURL(addr string) string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", addr)
}

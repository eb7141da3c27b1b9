package main

import (
	"context"
	"database/sql"
	"net"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"

	holdfastmysql "github.com/holdfast-lock/holdfast/sqllock/mysql"
)

var mariaDB = &sqlKind{
	store: "mysql", what: "MariaDB", account: "mysql", needs: "mariadb-server", dialect: holdfastmysql.Dialect(),
	programs: []string{"mariadb-install-db", "mariadbd"},
	quit:     syscall.SIGTERM,
	install: func(data string) []string {
		return []string{"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal",
			"--skip-name-resolve"}
	},
	serve: func(dir, data string, port int) []string {
		return []string{
			"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir, "--socket=" + dir + "/s", "--pid-file=" + dir + "/pid",
			"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port), "--skip-name-resolve",
			// The default: a commit is on the disk before its answer.
			"--innodb-flush-log-at-trx-commit=1",
			"--max-connections=" + strconv.Itoa(maxConnections), "--back-log=" + strconv.Itoa(maxConnections),
		}
	},
	pool: func(addr string, w *wire, peer bool) *sql.DB {
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = "root", "tcp", addr, "test"
		c.InterpolateParams = peer
		c.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, &net.Dialer{}, addr, new(mysqlParser))
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			panic(err) // the configuration is constant
		}
		return sql.OpenDB(connector)
	},
	version: "SELECT VERSION()",
	// Statements of clients; preparing and closing a statement are not counted.
	count:  "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'",
	others: "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'",
}

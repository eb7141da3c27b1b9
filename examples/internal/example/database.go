package example

import (
	"cmp"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // the driver

	"github.com/holdfast-lock/holdfast/fence"
)

// database opens the database with the data that the locks guard. Locks in MySQL are in the same
// database as the data. Other stores of locks stand beside a database, here an SQLite file.
func database(store, file string) (*sql.DB, fence.Dialect, error) {
	if !strings.HasPrefix(store, "mysql:") && !strings.HasPrefix(store, "mariadb:") {
		db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(60000)")
		return db, fence.SQLite, err
	}
	u, err := url.Parse(store)
	if err != nil || u.RawQuery != "" || u.Host == "" {
		return nil, 0, errors.New("the examples understand only mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE")
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	c.DBName = strings.TrimPrefix(u.Path, "/")
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, 0, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(8)
	return db, fence.MySQL, nil
}

package sqllock_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// A pool with the dialect of another server is refused, and the error says which dialect to use.
func TestDialectOfAnotherServer(t *testing.T) {
	for _, c := range []struct {
		driver, dsn string
		dialect     sqllock.Dialect
		want        string
	}{
		{"mysql", testenv.MariaDB(t).DSN("root", ""), postgres.Dialect(), "use mysql.Dialect"},
		{"pgx", testenv.Postgres(t).DSN("postgres"), mysql.Dialect(), "use postgres.Dialect"},
	} {
		db, err := sql.Open(c.driver, c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		b := sqllock.New(db, c.dialect, nil)
		defer func() { _ = b.Close() }()
		_, err = b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: time.Minute})
		if !errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrUncertain) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("Open: %v; want ErrRefused and %q", err, c.want)
		}
		if err := sqllock.Init(t.Context(), db, c.dialect); !errors.Is(err, driver.ErrRefused) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("Init: %v; want ErrRefused and %q", err, c.want)
		}
	}
}

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

// A pool that is nil is refused. A pool that was closed sends nothing, which the error says.
func TestPoolOfNothing(t *testing.T) {
	for _, d := range []sqllock.Dialect{mysql.Dialect(), postgres.Dialect()} {
		closed, err := sql.Open(map[string]string{"mysql": "mysql", "postgres": "pgx"}[d.Name()], "")
		if err != nil {
			t.Fatal(err)
		}
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			db   *sql.DB
			want error
			text string
		}{{nil, driver.ErrInvalid, "pool: it is nil"}, {closed, driver.ErrUnavailable, "database is closed"}} {
			b := sqllock.New(c.db, d, nil)
			_, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: time.Minute})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: Open: %v; want %v and %q", d.Name(), err, c.want, c.text)
			}
			if _, err := b.List(t.Context(), "", "", 1); !errors.Is(err, c.want) {
				t.Errorf("%s: List: %v; want %v", d.Name(), err, c.want)
			}
			if err := sqllock.Init(t.Context(), c.db, d); !errors.Is(err, c.want) {
				t.Errorf("%s: Init: %v; want %v", d.Name(), err, c.want)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

package testenv_test

import (
	"database/sql"
	"math"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// server is what the servers of package testenv have in common.
type server interface {
	OwnClock() *testenv.Clock
	Restart(graceful bool)
}

// A server's clock jumps forward and back while the server runs, and its timeouts are not affected.
func TestClock(t *testing.T) {
	t.Parallel()
	asked := func(driver, dsn, query string) func() float64 {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(0) // the server is restarted
		return func() (seconds float64) {
			if err := db.QueryRowContext(t.Context(), query).Scan(&seconds); err != nil {
				t.Error(err)
			}
			return seconds
		}
	}
	for name, begin := range map[string]func(t *testing.T) (server, func() float64){
		"Redis": func(t *testing.T) (server, func() float64) {
			r := testenv.Redis(t)
			client := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: 10})
			t.Cleanup(func() { _ = client.Close() })
			return r, func() float64 {
				now, err := client.Time(t.Context()).Result()
				if err != nil {
					t.Error(err)
				}
				return float64(now.UnixMicro()) / 1e6
			}
		},
		"MariaDB": func(t *testing.T) (server, func() float64) {
			m := testenv.MariaDB(t)
			return m, asked("mysql", m.DSN("root", ""), "SELECT UNIX_TIMESTAMP(NOW(6))")
		},
		"PostgreSQL": func(t *testing.T) (server, func() float64) {
			p := testenv.Postgres(t)
			return p, asked("pgx", p.DSN("postgres"), "SELECT EXTRACT(EPOCH FROM clock_timestamp())")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, read := begin(t)
			c := s.OwnClock()
			ahead := func(want time.Duration) {
				t.Helper()
				// Within the time that the query takes on a busy machine.
				got := read() - float64(time.Now().UnixMicro())/1e6
				if math.Abs(got-want.Seconds()) > 10 {
					t.Errorf("the server's clock is %v s ahead; want %v", got, want)
				}
			}
			ahead(0)
			c.Jump(time.Hour)
			ahead(time.Hour)
			c.Jump(-2 * time.Hour)
			ahead(-time.Hour)
			s.Restart(true)
			ahead(-time.Hour)
		})
	}
}

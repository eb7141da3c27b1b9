package testenv

import (
	"database/sql"
	"math"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

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
	for name, begin := range map[string]func(t *testing.T) (*server, func() float64){
		"Redis": func(t *testing.T) (*server, func() float64) {
			r := Redis(t)
			return &r.server, func() float64 {
				words, err := r.call("TIME")
				if err != nil || len(words) != 2 {
					t.Errorf("TIME: %q, %v", words, err)
					return 0
				}
				d, err := time.ParseDuration(words[0] + "s" + words[1] + "us")
				if err != nil {
					t.Error(err)
				}
				return d.Seconds()
			}
		},
		"MariaDB": func(t *testing.T) (*server, func() float64) {
			m := MariaDB(t)
			return &m.server, asked("mysql", m.DSN("root", ""), "SELECT UNIX_TIMESTAMP(NOW(6))")
		},
		"PostgreSQL": func(t *testing.T) (*server, func() float64) {
			p := Postgres(t)
			return &p.server, asked("pgx", p.DSN("postgres"), "SELECT EXTRACT(EPOCH FROM clock_timestamp())")
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

// A server's disk is full and then has space again. The server keeps its data.
func TestOwnDisk(t *testing.T) {
	t.Parallel()
	r := Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Do("SET a 1")
	d := r.OwnDisk(1 << 20)
	if got := r.Do("GET a"); got != "$1" {
		t.Fatalf("a, on the other disk: %q", got)
	}
	d.Fill()
	eventually(t, "the server ends because it cannot write", func() bool {
		_, _ = r.command("SET b 1")
		return r.current().ended()
	})
	d.Relieve()
	r.Start()
	if got := r.Do("GET a"); got != "$1" {
		t.Errorf("a, in the end: %q", got)
	}
}

//go:build linux

package torture

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
)

// TestCallsThatEnd: calls that end before the store has answered leave nothing, and return the
// error of their context, on any store and with each client library.
func TestCallsThatEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	var table callTable
	t.Cleanup(func() {
		if len(table.took) > 0 {
			t.Log(&table)
		}
	})
	for name, start := range deployments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			t.Run("locks", func(t *testing.T) { cancels(t, d, testenv.Rounds(80, 100_000)) })
			t.Run("closes", func(t *testing.T) { closes(t, d, testenv.Rounds(25, 10_000)) })
			if d.freeze != nil {
				t.Run("frozen", func(t *testing.T) { freezes(t, d, testenv.Rounds(1, 5), &table) })
			}
		})
	}
}

// deployment is a running store, and a backend for it.
type deployment struct {
	driver.Backend

	// freeze stops the servers silently until thaw is called. Nil: there is no server.
	freeze func() (thaw func())
}

// pausable is a server that can be frozen.
type pausable interface {
	Pause()
	Continue()
}

func frozen(all ...pausable) func() func() {
	return func() func() {
		for _, s := range all {
			s.Pause()
		}
		return func() {
			for _, s := range all {
				s.Continue()
			}
		}
	}
}

// longest is the longest TTL that each deployment allows.
const longest = time.Hour

// deployments are one for each store and client library.
var deployments = map[string]func(t *testing.T) deployment{
	"memory": func(*testing.T) deployment { return deployment{memlock.New(), nil} },
	"sqlite": func(t *testing.T) deployment {
		path := filepath.Join(t.TempDir(), "locks.db")
		return deployment{opened(t, "sqlite:"+path), func() func() { return holdFile(t, path) }}
	},
	"redis, rueidis": func(t *testing.T) deployment {
		s := testenv.Redis(t)
		return deployment{opened(t, s.URL()), frozen(s)}
	},
	"redis, go-redis": func(t *testing.T) deployment {
		s := testenv.Redis(t)
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		t.Cleanup(func() { _ = client.Close() })
		return deployment{closing(t, redislock.New(goredisconn.New(client), nil)), frozen(s)}
	},
	"quorum": func(t *testing.T) deployment {
		var servers []quorum.Server
		var all []pausable
		for range 3 {
			s := testenv.Redis(t)
			all = append(all, s)
			servers = append(servers, quorum.Server{Name: s.Addr, Dial: func(ctx context.Context) (redislock.Conn, error) {
				return rueidisconn.DialContext(ctx, s.URL(), nil)
			}})
		}
		b := quorum.New(servers, &quorum.Config{Quarantine: longest})
		if err := b.Declare(t.Context()); err != nil {
			t.Fatal(err)
		}
		return deployment{closing(t, b), frozen(all...)}
	},
	"zookeeper": func(t *testing.T) deployment {
		s := testenv.ZooKeeper(t, "maxSessionTimeout=7200000")
		return deployment{opened(t, s.URL()), frozen(s)}
	},
	"mysql": func(t *testing.T) deployment {
		s := testenv.MariaDB(t)
		url := "mysql:" + s.DSN("root", "")
		initialise(t, url, mysql.Dialect())
		return deployment{opened(t, url), frozen(s)}
	},
	"postgres": func(t *testing.T) deployment {
		s := testenv.Postgres(t)
		initialise(t, s.DSN("postgres"), postgres.Dialect())
		return deployment{opened(t, s.DSN("postgres")), frozen(s)}
	},
}

func opened(t *testing.T, url string) driver.Backend {
	t.Helper()
	b, err := open(url)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, b)
}

func closing(t *testing.T, b driver.Backend) driver.Backend {
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// holdFile locks an SQLite file against everybody until free is called.
func holdFile(t *testing.T, path string) (free func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

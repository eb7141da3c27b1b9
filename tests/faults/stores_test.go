package faults

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
	"github.com/holdfast-lock/holdfast/sqllock/postgres"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"
	"github.com/holdfast-lock/holdfast/zklock"
)

// machine is a server process: any server of package testenv.
type machine interface {
	Start()
	Kill()
	Pause()
	Continue()
	Ended() (lastWords string, ended bool)
	OwnClock() *testenv.Clock
	OwnDisk(room int) *testenv.Disk
}

// site is a running store: its servers, and how clients connect.
type site struct {
	t       *testing.T
	servers []machine
	dial    func(t *testing.T) driver.Backend // with connections of its own
	// Prepares the servers once before the first client; may be nil.
	prepare func()
	ready   bool   // prepare was called
	path    string // of an SQLite store
	dsn     string // of a database
}

// at returns the store for a subtest, whose end closes its clients.
func (s *site) at(t *testing.T) *site {
	s.begin()
	part := *s
	part.t = t
	return &part
}

// begin prepares the servers once.
func (s *site) begin() {
	if !s.ready && s.prepare != nil {
		s.prepare()
	}
	s.ready = true
}

// backend returns a backend that is closed when the test ends.
func (s *site) backend() driver.Backend {
	s.t.Helper()
	s.begin()
	b := s.dial(s.t)
	s.t.Cleanup(func() { _ = b.Close() })
	return b
}

func redisSite(t *testing.T, args ...string) *site {
	t.Helper()
	return redisAt(t, testenv.Redis(t, args...))
}

func redisAt(t *testing.T, r *testenv.RedisServer) *site {
	return &site{t: t, servers: []machine{r}, dial: func(t *testing.T) driver.Backend {
		return redislock.New(dialRedis(t, r.Addr), nil)
	}}
}

func dialRedis(t *testing.T, addr string) redislock.Conn {
	t.Helper()
	var conn redislock.Conn
	err := testenv.Repeated(func() (err error) { conn, err = rueidisconn.Dial("redis://" + addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// quorumSite is a quorum of five servers that keep all data.
func quorumSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t}
	var members []quorum.Server
	for i := range 5 {
		r := testenv.Redis(t, "--appendonly", "yes", "--appendfsync", "no")
		s.servers = append(s.servers, r)
		members = append(members, quorum.Server{
			Name: fmt.Sprint("server ", i+1),
			Dial: func(ctx context.Context) (redislock.Conn, error) {
				return rueidisconn.DialContext(ctx, "redis://"+r.Addr, nil)
			},
		})
	}
	open := func() *quorum.Backend { return quorum.New(members, &quorum.Config{Quarantine: ttl}) }
	s.dial = func(*testing.T) driver.Backend { return open() }
	s.prepare = func() {
		b := open()
		defer func() { _ = b.Close() }()
		if err := b.Declare(limited(t)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func zooKeeperSite(t *testing.T, settings ...string) *site {
	t.Helper()
	return zooKeeperAt(t, testenv.ZooKeeper(t, append(settings, longSessions)...))
}

// longSessions allows sessions of 14 s.
const longSessions = "tickTime=700"

func zooKeeperAt(t *testing.T, z *testenv.ZooKeeperServer) *site {
	return &site{t: t, servers: []machine{z}, dial: func(t *testing.T) driver.Backend { return dialZooKeeper(t, z.Addr) }}
}

// ensembleSite is an ensemble of three servers.
func ensembleSite(t *testing.T, settings ...string) *site {
	t.Helper()
	e := testenv.ZooKeeperEnsemble(t, 3, append(settings, longSessions)...)
	s := &site{t: t, dial: func(t *testing.T) driver.Backend { return dialZooKeeper(t, e.Addrs()...) }}
	leader := e.Leader()
	s.servers = append(s.servers, e.Servers[leader]) // the leader first
	for i, z := range e.Servers {
		if i != leader {
			s.servers = append(s.servers, z)
		}
	}
	return s
}

func dialZooKeeper(t *testing.T, addrs ...string) driver.Backend {
	t.Helper()
	// A client trusts 3/5 of a session's timeout.
	b, err := zklock.New(zklock.Config{Servers: addrs, Session: ttl * 5 / 3})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mariaDBSite(t *testing.T, args ...string) *site {
	t.Helper()
	return mariaDBAt(t, testenv.MariaDB(t, args...))
}

func mariaDBAt(t *testing.T, m *testenv.MariaDBServer) *site {
	return databaseSite(t, m, "mysql", m.DSN("root", ""), mysql.Dialect)
}

func postgresSite(t *testing.T, settings ...string) *site {
	t.Helper()
	return postgresAt(t, testenv.Postgres(t, settings...))
}

func postgresAt(t *testing.T, p *testenv.PostgresServer) *site {
	return databaseSite(t, p, "pgx", p.DSN("postgres"), postgres.Dialect)
}

func databaseSite(t *testing.T, m machine, name, dsn string, dialect func() sqllock.Dialect) *site {
	return &site{
		t: t, servers: []machine{m}, dsn: dsn,
		dial: func(t *testing.T) driver.Backend {
			db := pool(t, name, dsn)
			return sqllock.New(db, dialect(), nil)
		},
		prepare: func() {
			if err := sqllock.Init(limited(t), pool(t, name, dsn), dialect()); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func pool(t *testing.T, name, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(name, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// sqliteSite is a file without a server.
func sqliteSite(t *testing.T, dir string) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test waits for leases to expire")
	}
	path := filepath.Join(dir, "locks.db")
	return &site{t: t, path: path, dial: func(t *testing.T) driver.Backend {
		b, err := sqlite.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}}
}

// limited returns a context for calls that must not hang.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// until polls for a condition that no event reports, such as a state of a server.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// shorten returns the start of an error's text: servers print a lot.
func shorten(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
